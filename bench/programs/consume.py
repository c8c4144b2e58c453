"""confluent-kafka for Python reads a topic from its beginning.

consume.py SERVERS TOPIC KIND PARTITIONS MESSAGES PASSES [SETTING=VALUE...]; see consume.rb. KIND is batch.
"""

import json
import platform
import sys
import time

import confluent_kafka

SERVERS, TOPIC, KIND, PARTITIONS, COUNT, PASSES = sys.argv[1:7]
SETTINGS = dict(pair.split("=", 1) for pair in sys.argv[7:])


def read_all(count):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": SERVERS, "group.id": "penstock.bench",
                                         "enable.auto.commit": False, **SETTINGS})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, i, 0) for i in range(int(PARTITIONS))])
    start = None
    first = taken = touched = 0
    while taken < count:
        for message in consumer.consume(num_messages=10_000, timeout=0.1):
            if message.error() is None:
                touched += len(message.value())
                taken += 1
        if taken and start is None:
            first = taken
            start = time.monotonic()
    took = (time.monotonic() - start) * count / (count - first)
    consumer.close()
    return took


print(json.dumps({"ready": f"confluent-kafka {confluent_kafka.__version__}, "
                           f"Python {platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}", "differs": []}), flush=True)
for _ in sys.stdin:
    took = sum(read_all(int(COUNT)) for _ in range(int(PASSES)))
    print(json.dumps({"seconds": took, "delivered": int(COUNT) * int(PASSES), "failed": 0}), flush=True)
