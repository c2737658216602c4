"""A service by python3-websockets, written from the published interface with choices of its own: Connections are made by
an operator, the channel is /hub/notifications, its credential stands in the query, and what it says is plain text.
Lines on standard input are sent to the device; what happens is told on standard output."""

import asyncio
import sys
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import websockets

TOKEN = sys.argv[1]
peers = set()


def say(*words):
    print(*words, flush=True)


async def check(path, headers):
    url = urlsplit(path)
    if url.path != "/tenant/hub/notifications":
        return HTTPStatus.NOT_FOUND, [], b"no such channel\n"
    if parse_qs(url.query).get("authorization") != ["Connection " + TOKEN]:
        say("refused")
        return HTTPStatus.UNAUTHORIZED, [], b"who are you?\n"
    if "authorization" in headers:
        say("unexpected header")


async def serve(peer):
    peers.add(peer)
    say("open")
    try:
        async for message in peer:
            say("message", message)
    except websockets.ConnectionClosed:
        pass
    finally:
        peers.discard(peer)
        say("closed")


async def main():
    server = await websockets.serve(serve, "127.0.0.1", 0, process_request=check, ping_interval=None)
    say("port", server.sockets[0].getsockname()[1])
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line == "drop\n":
            for peer in list(peers):
                peer.transport.abort()
        else:
            for peer in list(peers):
                await peer.send(line.rstrip("\n"))


asyncio.run(main())
