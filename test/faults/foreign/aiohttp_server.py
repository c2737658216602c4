"""A service by python3-aiohttp, written from the published interface with choices of its own: devices register by Basic,
the token stands deep in the answer, the channel is /idv/push, pings are never answered, messages have other fields.
Lines on standard input are sent to the device; what happens is told on standard output."""

import asyncio
import base64
import sys

from aiohttp import WSMsgType, web

USER, PASSWORD, TOKEN = sys.argv[1:4]
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
peers = set()


def say(*words):
    print(*words, flush=True)


async def register(request):
    if request.headers.get("Authorization") != BASIC:
        say("refused")
        return web.json_response({"fault": "bad credentials"}, status=401)
    body = await request.json()
    say("registered", body["deviceId"], body["workflowId"])
    return web.json_response({"data": {"session": {"key": TOKEN}, "token": {"not": "this"}}}, status=201)


async def push(request):
    if request.headers.get("Authorization") != "Connection " + TOKEN:
        say("refused")
        return web.Response(status=401, text="no")
    peer = web.WebSocketResponse(autoping=False)
    await peer.prepare(request)
    peers.add(peer)
    say("open")
    async for message in peer:
        if message.type == WSMsgType.TEXT:
            say("message", message.data)
        elif message.type == WSMsgType.PING:
            say("ping")
    peers.discard(peer)
    say("closed")
    return peer


async def main():
    application = web.Application()
    application.add_routes([web.post("/idv/api/device/connection", register), web.get("/idv/push", push)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    say("port", site._server.sockets[0].getsockname()[1])
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        for peer in list(peers):
            if line == "drop\n":
                peer._req.transport.abort()
            else:
                await peer.send_str(line.rstrip("\n"))


asyncio.run(main())
