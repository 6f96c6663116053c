#!/usr/bin/env python3
"""A kubectl of which `allot --context` asks three things: the StatefulSets of experiments' stores, the
Secret that one names, and a port that leads to its Redis. The folder in FAKE_CLUSTER says what there is:

stores.json   the answer to `get statefulset`
secrets.json  the Secrets of which `get secret NAME` answers one
redis.sock    where the forwarded port leads
redis.port    if it is there: the port that it leads to instead
denied        if it is there: what `get` fails with
connections   if it is there: how many connections the forwarding lives for
calls         every command line is appended here
"""
import json
import os
import socket
import sys
import threading

CLUSTER = os.environ["FAKE_CLUSTER"]


def path(name):
    return os.path.join(CLUSTER, name)


def read(name):
    with open(path(name), encoding="utf-8") as file:
        return file.read()


def fail(sentence):
    print(sentence, file=sys.stderr)
    sys.exit(1)


def relay(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def forward(service):
    if service != "svc/stay-redis":
        fail(f'Error from server (NotFound): services "{service[4:]}" not found')
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    print(f"Forwarding from 127.0.0.1:{port} -> 6379", flush=True)
    left = int(read("connections")) if os.path.exists(path("connections")) else -1
    while left != 0:
        client, _ = listener.accept()
        if os.path.exists(path("redis.port")):
            server = socket.create_connection(("127.0.0.1", int(read("redis.port"))))
        else:
            server = socket.socket(socket.AF_UNIX)
            server.connect(path("redis.sock"))
        ways = [threading.Thread(target=relay, args=pair, daemon=True)
                for pair in ((client, server), (server, client))]
        for way in ways:
            way.start()
        left -= 1
        if left == 0:
            for way in ways:
                way.join()
    fail("error: lost connection to pod")


def main():
    with open(path("calls"), "a", encoding="utf-8") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    contexts = [word for word in options if word.startswith("--context=")]
    if contexts not in ([], ["--context=test"]):
        name = contexts[0].split("=", 1)[1]
        fail(f'error: context "{name}" does not exist')
    if words[0] == "get" and os.path.exists(path("denied")):
        fail(read("denied"))
    if words == ["get", "statefulset"]:
        print(read("stores.json"))
    elif words[:2] == ["get", "secret"]:
        for secret in json.loads(read("secrets.json")):
            if secret["metadata"]["name"] == words[2]:
                print(json.dumps(secret))
                return
        fail(f'Error from server (NotFound): secrets "{words[2]}" not found')
    elif words[0] == "port-forward" and words[2] == ":6379":
        forward(words[1])
    else:
        fail(f"error: unknown command {words}")


main()
