"""The tasks of the workers."""

import os
import time

from celery import Celery

BROKER = os.environ["CELERY_BROKER_URL"]

app = Celery("tasks", broker=BROKER, backend=BROKER)
app.conf.worker_prefetch_multiplier = 1


@app.task
def add(first, second, seconds=0.0):
    """Return the sum of two numbers after some seconds."""
    time.sleep(seconds)
    return first + second
