"""The Celery app and the tasks of the tests. What they do, they write into a file, a line each."""

import json
import os
import signal
import time
from pathlib import Path

import django
from celery import Celery, Task, current_task, shared_task
from celery.exceptions import Reject

from django_claims import claim, current_hold
from django_claims.clock import clock
from django_claims.contrib.celery import single_instance

django.setup()

app = Celery("work")
app.conf.update(
    broker_url=os.environ["WORK_BROKER"],
    result_backend=os.environ["WORK_RESULTS"],
    result_backend_transport_options={"global_keyprefix": os.environ["JOBS_PREFIX"]},
    task_default_queue=os.environ["JOBS_PREFIX"],
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    task_track_started=True,
    worker_enable_remote_control=True,
    result_expires=600,
)
options = json.loads(os.environ.get("WORK_OPTIONS", "{}"))
if app.conf.broker_url.startswith("redis"):
    keys = {"global_keyprefix": os.environ["JOBS_PREFIX"]}
    app.conf.broker_transport_options = {**keys, **options.pop("transport", {})}
app.conf.update(options)


def tell(what, **about):
    task = current_task
    line = {"what": what, "at": clock(), "task": task.name, "id": task.request.id, "pid": os.getpid(), **about}
    fd = os.open(os.environ["WORK_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, json.dumps(line).encode() + b"\n")
    os.close(fd)


def sleep(seconds):
    """Sleep in small pieces: what comes from another thread or greenlet gets its turn."""
    ends = clock() + seconds
    while clock() < ends:
        time.sleep(0.02)


def body(seconds, **about):
    tell("start", fence=current_hold().fence, **about)
    try:
        sleep(seconds)
        tell("end")
    finally:
        tell("left")
    return "done"


@shared_task
@single_instance(ttl=30)
def work(seconds=0.0):
    return body(seconds)


@shared_task
@single_instance(ttl=4)
def brief(seconds=0.0):
    """With a TTL that a test can wait out."""
    return body(seconds)


@shared_task(acks_late=True, reject_on_worker_lost=True)
@single_instance(ttl=4)
def late(seconds=0.0, die_first=False):
    if die_first and not Path(die_first).exists():
        Path(die_first).touch()
        tell("start", fence=current_hold().fence)
        os.kill(os.getpid(), 9)
    return body(seconds)


@shared_task(acks_late=True, reject_on_worker_lost=True)
def unguarded(seconds=0.0):
    tell("start")
    sleep(seconds)
    tell("end")


@shared_task
def unguarded_early(seconds=0.0):
    tell("start")
    sleep(seconds)
    tell("end")


@shared_task(acks_late=True)
@single_instance(ttl=30)
def late_failing(seconds=0.0):
    body(seconds)
    raise ValueError("no luck")


@shared_task
@single_instance(name="task:work.work", ttl=30, on_refused="retry")
def patient(seconds=0.0):
    return body(seconds)


@shared_task
@single_instance(name="task:work.work", ttl=30, on_refused="fail")
def strict(seconds=0.0):
    return body(seconds)


@shared_task(time_limit=2)
@single_instance(ttl=30)
def limited(seconds=0.0):
    return body(seconds)


@shared_task(soft_time_limit=1)
@single_instance(ttl=30)
def softly_limited(seconds=0.0):
    return body(seconds)


def look(seconds):
    hold = current_hold()
    tell("start", fence=hold.fence)
    ends = clock() + seconds
    try:
        while clock() < ends:
            hold.checkpoint()
            time.sleep(0.02)
        tell("end")
    finally:
        tell("left")
    return "done"


@shared_task
@single_instance(ttl=30)
def looking(seconds=0.0):
    return look(seconds)


@shared_task
@single_instance(ttl=30, stop_on_shutdown=True)
def stoppable(seconds=0.0):
    return look(seconds)


@shared_task(acks_late=True)
@single_instance(ttl=30, stop_on_shutdown=True)
def late_stoppable(seconds=0.0):
    return look(seconds)


@shared_task(bind=True, max_retries=2)
@single_instance(ttl=30, min_hold=20)
def tries_again(self, fail_until=2):
    tell("start", fence=current_hold().fence, retries=self.request.retries)
    if self.request.retries < fail_until:
        raise self.retry(countdown=0.05)
    return self.request.retries


@shared_task(autoretry_for=(ValueError,), retry_kwargs={"countdown": 0.05}, max_retries=2)
@single_instance(ttl=30, min_hold=20)
def retried():
    tell("start", fence=current_hold().fence)
    raise ValueError("again")


@shared_task
@single_instance(ttl=30, key="number")
def dies(number):
    """As the kernel's killer would have it, and before anybody had a look at this process."""
    tell("start", fence=current_hold().fence)
    os.kill(os.getpid(), signal.SIGKILL)


@shared_task
@single_instance(ttl=30)
def fails():
    tell("start", fence=current_hold().fence)
    raise ValueError("no luck")


@shared_task
@single_instance(ttl=30)
def rejects():
    raise Reject("not for me", requeue=False)


@shared_task(ignore_result=False)
@single_instance(ttl=60)
def leaves_one():
    """Take a claim outside of `with`, and forget about it."""
    kept.append(claim("left behind", ttl=60).acquire())
    return os.getpid()


kept = []


@shared_task
def after(value):
    return {"after": value}


@shared_task
def other():
    return "other"


@shared_task
def gather(values):
    return values


class Based(Task):
    abstract = True


@single_instance(ttl=30, key="number")
class GuardedTask(Task):
    abstract = True


@shared_task(base=GuardedTask)
def of_base(number, seconds=0.0):
    return body(seconds)


@shared_task(bind=True)
@single_instance(ttl=30, key="number")
def bound(self, number, seconds=0.0):
    return body(seconds, own=self.request.id == current_task.request.id)


@shared_task
def adopts(name, ticket):
    with claim(name, ttl=30).adopt(ticket) as hold:
        tell("start", fence=hold.fence)
        sleep(0.3)
        return hold.held
