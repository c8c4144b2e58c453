"""confluent-kafka for Python as its documentation advises: poll serves delivery callbacks meanwhile, and flush at the end.

A peer, see bench/README.md.
"""

import argparse
import gc
import itertools
import json
import platform
import sys
import threading
import time

import confluent_kafka

HEADERS = [("trace", b"t" * 32), ("kind", b"bench")]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--key", action="store_true")
    parser.add_argument("--headers", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    return parser.parse_args()


class Report:
    """What a program keeps of one message: its delivery result."""

    __slots__ = ("error", "message")

    def __call__(self, error, message):
        self.error = error
        self.message = message


class Client:
    """A producer, and the result of its latest round."""

    def __init__(self, options):
        settings = dict(setting.split("=", 1) for setting in options.set)
        self.producer = confluent_kafka.Producer({**settings, "bootstrap.servers": options.bootstrap})
        self.topic = options.topic
        self.headers = HEADERS if options.headers else None
        self.messages = [(b"x" * options.size, b"%d" % number if options.key else None) for number in range(options.messages)]
        self.run(self.batch, self.messages[:1])

    def run(self, workload, messages):
        self.delivered, self.failed, self.error = 0, 0, None
        self.started = time.monotonic()
        workload(messages)
        self.finished = time.monotonic()

    def count(self, error, _message=None):
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1
            self.error = error

    def send(self, messages, callbacks):
        for number, ((payload, key), on_delivery) in enumerate(zip(messages, callbacks), 1):
            while True:
                try:
                    self.producer.produce(self.topic, payload, key, on_delivery=on_delivery, headers=self.headers)
                    break
                except BufferError:  # the queue is full until reports have been served
                    self.producer.poll(0.1)
            if number % 1000 == 0:  # a tenth faster than after each message
                self.producer.poll(0)

    def batch(self, messages):
        self.send(messages, itertools.repeat(self.count))
        self.producer.flush()

    def callbacks(self, messages):
        reports = [Report() for _ in messages]
        self.send(messages, reports)
        self.producer.flush()
        for report in reports:
            self.count(report.error)

    def one_by_one(self, messages):
        self.latencies = []
        for number, message in enumerate(messages, 1):
            begun = time.monotonic()
            self.send([message], [self.count])
            while self.delivered + self.failed < number:
                self.producer.poll(1)
            self.latencies.append(round((time.monotonic() - begun) * 1e6, 1))


def run_round(clients, workload):
    gc.collect()  # so that garbage of earlier rounds does not count
    together = threading.Barrier(len(clients))

    def run(client):
        together.wait()
        client.run(getattr(client, workload), client.messages)

    threads = [threading.Thread(target=run, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result = {
        "seconds": max(client.finished for client in clients) - min(client.started for client in clients),
        "delivered": sum(client.delivered for client in clients),
        "failed": sum(client.failed for client in clients),
    }
    return {**result, "latencies_us": clients[0].latencies} if workload == "one_by_one" else result


def main():
    options = arguments()
    workload = {"batch": "batch", "async": "callbacks", "sync": "one_by_one"}.get(options.workload)
    if workload is None:
        sys.exit(64)
    clients = [Client(options) for _ in range(options.producers if options.workload == "batch" else 1)]
    die_if_failed(clients)
    differs = [] if workload == "one_by_one" else ["its flush at the end does not linger"]
    versions = f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
    say({"ready": f"{versions}, Python {platform.python_version()}", "differs": differs})
    for _ in sys.stdin:
        result = run_round(clients, workload)
        die_if_failed(clients)
        say(result)


def die_if_failed(clients):
    errors = [client.error for client in clients if client.error is not None]
    if errors:
        sys.exit(f"messages failed: {sum(client.failed for client in clients)}, the latest: {errors[-1]}")


def say(answer):
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
