"""An identity verification service by python3-tornado, written from docs/service-interface.md alone. Where that is silent: the token of
a registration is deep in the answer beside the address of the channel, which has the device's id in it. A device sends `subscribe` first,
acknowledges each notification, and gets it again until it has. Arguments: user and password of the operator."""

import base64
import json
import secrets
import sys
import time

import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.web
import tornado.websocket

BASIC = "Basic " + base64.b64encode(":".join(sys.argv[1:3]).encode()).decode()
codes, keys, connections, listeners = {}, {}, {}, {}
numbers = iter(range(1, 1_000_000))


def say(*words):
    print(*words, flush=True)


class Answer(tornado.web.RequestHandler):
    def refuse(self, status, words):
        self.set_status(status)
        self.finish({"status": "error", "reason": words})

    def allowed(self, permission):
        given = self.request.headers.get("Authorization", "")
        scheme, _, secret = given.partition(" ")
        return given == BASIC or (scheme == "ApiKey" and permission in keys.get(secret, []))


class Qr(Answer):
    def get(self):
        if not self.allowed("ephemeral_device:write"):
            return self.refuse(401, "operators only")
        code = secrets.token_urlsafe(21)
        codes[code] = self.get_query_argument("workflowId")
        base = f"{self.request.protocol}://{self.request.host}"
        link = f"{base}/mobile?authorization=Token%20{code}&workflowId={codes[code]}"
        self.finish({"result": {"deeplink": link, "validForSeconds": 300}})


class Keys(Answer):
    def post(self):
        if self.request.headers.get("Authorization") != BASIC:
            return self.refuse(401, "operators only")
        wanted = json.loads(self.request.body)
        key = "ak_" + secrets.token_hex(20)
        keys[key] = wanted["permissions"]
        made = {"id": str(len(keys)), "token": key, "name": wanted["name"], "permissions": wanted["permissions"]}
        self.set_status(201)
        self.finish(made)


class Deeplink(Answer):
    def post(self):
        if not self.allowed("deeplink:write"):
            return self.refuse(403, "deeplink:write is missing")
        workflows = self.get_query_arguments("workflowId")
        token, session = secrets.token_hex(14), secrets.token_hex(12)
        base = f"{self.request.protocol}://{self.request.host}"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        url = f"{base}/mobile?authorization=Token%20{token}&sessionId={session}"
        self.finish({"url": url, "createdAt": now, "expiresAt": end, "workflowIds": workflows})


class Register(Answer):
    def post(self):
        scheme, _, secret = self.request.headers.get("Authorization", "").partition(" ")
        if scheme == "Token":
            if codes.pop(secret, None) is None:
                say("lost")
                return self.refuse(401, "the code is not valid any more")
        elif not self.allowed("ephemeral_device:write"):
            return self.refuse(401, "who are you?")
        device = json.loads(self.request.body)["deviceId"]
        token = secrets.token_urlsafe(33)
        connections[token] = device
        channel = f"ws://{self.request.host}/push/{device}/stream"
        self.finish({"result": {"device": device, "credential": {"value": token, "kind": "Connection"}, "channel": channel}})


class Channel(tornado.websocket.WebSocketHandler):
    def prepare(self):
        scheme, _, secret = self.request.headers.get("Authorization", "").partition(" ")
        if scheme != "Connection" or secret not in connections:
            self.set_status(401)
            self.finish("no connection")

    def open(self, device):
        self.device, self.waiting, self.subscribed = device, {}, False
        self.late = tornado.ioloop.IOLoop.current().call_later(0.7, self.miss)

    def miss(self):
        if not self.subscribed:
            self.close(4400, "subscribe expected")

    def on_message(self, text):
        said = json.loads(text)
        if said.get("action") == "subscribe":
            self.subscribed = True
            listeners[self.device] = self
            self.write_message(json.dumps({"action": "subscribed", "device": self.device}))
        elif said.get("action") == "ack":
            if self.waiting.pop(said.get("messageId"), None):
                say("acknowledged", self.device, said["messageId"])

    def on_close(self):
        tornado.ioloop.IOLoop.current().remove_timeout(self.late)
        if listeners.get(self.device) is self:
            del listeners[self.device]

    def tell(self, kind):
        number = f"n-{next(numbers)}"
        body = json.dumps({"action": kind, "messageId": number, "about": {"sessionId": secrets.token_hex(4)}})
        self.waiting[number] = body
        self.write_message(body)
        say("sent", self.device, number, kind)

    def again(self):
        for body in self.waiting.values():
            self.write_message(body)


class Away(Answer):
    def get(self):
        self.refuse(404, "nothing here")


application = tornado.web.Application(
    [
        ("/api/deeplink/qrcode", Qr),
        ("/api/security/apikeys", Keys),
        ("/api/v1/deeplink", Deeplink),
        ("/api/device/connection", Register),
        ("/push/([^/]+)/stream", Channel),
    ],
    default_handler_class=Away,
)
sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
tornado.httpserver.HTTPServer(application).add_sockets(sockets)
kinds = ["session.started", "check.completed", "session.ended"]


def tell_all():
    for channel in list(listeners.values()):
        channel.again()
        channel.tell(kinds[next(numbers) % 3])


tornado.ioloop.PeriodicCallback(tell_all, 400).start()
say("port", sockets[0].getsockname()[1])
tornado.ioloop.IOLoop.current().start()
