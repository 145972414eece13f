"""Stand-ins for the API of JobSets and for their controller.

The real controller (https://github.com/kubernetes-sigs/jobset) is a Go program that is distributed
as a container image, and the test clusters cannot pull images. The API server of the devcluster
cannot store JobSets either: this build of Kubernetes 1.20 crashes when it decodes an object of any
custom kind. Therefore, a proxy in front of the real API server keeps the JobSets, and forwards all
other requests. The stand-in for the controller does what the documentation of JobSets describes,
as far as symphony depends on it: it creates the Jobs, restarts all of them if one fails, applies
the failure policy and the success policy, deletes what is unnecessary, and sets the conditions.
The Jobs and Pods are real.
"""

import asyncio
import contextlib
import json
import secrets
import threading
import time
from urllib.parse import parse_qs, urlsplit

from kubetest import relay
from kubetest.faults import FaultProxy
from symphony_kube.api.client import MERGE_PATCH
from symphony_kube.api.errors import ApiError
from symphony_kube.api.watch import LISTED, Watcher

ROOT = "/apis/jobset.x-k8s.io/v1alpha2"
VERSION = ROOT.removeprefix("/apis/")
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"


class JobSetApi(FaultProxy):
    """A proxy that serves the JobSets of one namespace. ``job_sets`` contains them by name."""

    def __init__(self, kubeconfig, *, scratch):
        super().__init__(kubeconfig, scratch=scratch)
        self.job_sets = {}
        # All changes, of which each has its number as its resource version.
        self._events = []
        self._changed = asyncio.Condition()

    async def _serve(self, reader, writer):
        upstream = relay.Upstream(self._access)
        try:
            while head := await relay.read_head(reader):
                body = await relay.read_body(head, reader)
                url = urlsplit(head.path)
                if url.path.startswith(ROOT):
                    query = {key: values[0] for key, values in parse_qs(url.query).items()}
                    if query.get("watch") == "true":
                        return await self._watch(query, writer)
                    content = json.loads(body) if body else None
                    status, answer = await self._answer(head.method, url.path, query, content)
                    writer.write(relay.json_answer(answer, status=status))
                    continue
                answer = await upstream.ask(head, body)
                if not await upstream.pass_on(head, answer, reader, writer):
                    return None
        finally:
            await upstream.close()

    async def _answer(self, method, path, query, content):
        """Return the status and the body of the response to a request."""
        _, _, rest = path.removeprefix(ROOT).partition("/jobsets")
        name, _, part = rest.strip("/").partition("/")
        if path == ROOT:
            return 200, {"resources": [{"name": "jobsets"}, {"name": "jobsets/status"}]}
        if method == "POST":
            return await self._create(content, is_dry_run="dryRun" in query)
        if not name:
            return 200, {"metadata": {"resourceVersion": self._version}, "items": self._list(query)}
        found = self.job_sets.get(name)
        if found is None:
            return 404, _failure("NotFound", f'jobsets.jobset.x-k8s.io "{name}" not found')
        if method == "PATCH":
            expected = content.get("metadata", {}).get("resourceVersion")
            if expected not in (None, found["metadata"]["resourceVersion"]):
                return 409, _failure("Conflict", "the object has been modified")
            if part == "status":
                content = {"status": content["status"]}
            return 200, await self._put("MODIFIED", _merged(found, content))
        if method == "DELETE":
            del self.job_sets[name]
            return 200, await self._put("DELETED", found)
        return 200, found

    async def _create(self, body, *, is_dry_run):
        name = body["metadata"]["name"]
        if name in self.job_sets:
            return 409, _failure("AlreadyExists", f'jobsets.jobset.x-k8s.io "{name}" exists')
        metadata = {**body["metadata"], "uid": secrets.token_hex(8), "creationTimestamp": _now()}
        created = {**body, "metadata": metadata}
        return 201, created if is_dry_run else await self._put("ADDED", created)

    @property
    def _version(self):
        return str(len(self._events))

    def _list(self, query):
        items = self.job_sets.values()
        return [item for item in items if _is_selected(item, query.get("labelSelector", ""))]

    async def _put(self, event, body):
        async with self._changed:
            version = str(len(self._events) + 1)
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
            if event != "DELETED":
                self.job_sets[body["metadata"]["name"]] = body
            self._events.append((event, body))
            self._changed.notify_all()
        return body

    async def _watch(self, query, writer):
        """Send the changes after a resource version until the client closes the connection."""
        headers = (("content-type", "application/json"), ("transfer-encoding", "chunked"))
        writer.write(relay.Head(line="HTTP/1.1 200 OK", headers=headers).encode({}))
        position = int(query["resourceVersion"])
        while True:
            async with self._changed:
                while len(self._events) == position:
                    await self._changed.wait()
            for event, body in self._events[position:]:
                if _is_selected(body, query.get("labelSelector", "")):
                    line = json.dumps({"type": event, "object": body}).encode() + b"\n"
                    writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            position = len(self._events)
            await writer.drain()


def _failure(reason, message):
    return {"kind": "Status", "status": "Failure", "reason": reason, "message": message}


def _merged(value, patch):
    """Return a value after a JSON merge patch."""
    if not isinstance(patch, dict) or not isinstance(value, dict):
        return patch
    result = {key: item for key, item in value.items() if patch.get(key, item) is not None}
    for key, item in patch.items():
        if item is not None:
            result[key] = _merged(value.get(key, {}), item)
    return result


def _is_selected(body, selector):
    labels = body["metadata"].get("labels", {})
    for term in filter(None, selector.split(",")):
        key, equals, value = term.partition("=")
        if key.startswith("!"):
            matches = key[1:] not in labels
        else:
            matches = labels.get(key) == value if equals else key in labels
        if not matches:
            return False
    return True


def _now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class JobSetController:
    """A controller for the JobSets of a namespace, in a thread.

    While ``may_restart`` is cleared, it does not create the Jobs of the next attempts.
    """

    def __init__(self, api, namespace):
        self._api = api
        self._job_sets = f"{ROOT}/namespaces/{namespace}/jobsets"
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._watcher = Watcher(api, {"jobsets": self._job_sets, "jobs": self._jobs}, "")
        self._found = {"jobsets": {}, "jobs": {}}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.may_restart = threading.Event()
        self.may_restart.set()

    def __enter__(self):
        for kind in self._found:
            self._replace(kind, self._watcher.start(kind))
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.may_restart.set()
        self._watcher.close()
        self._thread.join()

    def _replace(self, kind, objects):
        self._found[kind] = {item["metadata"]["name"]: item for item in objects}

    def _run(self):
        while not self._watcher.closed:
            for change in self._watcher.changes():
                if change.event == LISTED:
                    self._replace(change.kind, change.objects)
                    continue
                (item,) = change.objects
                self._found[change.kind][item["metadata"]["name"]] = item
                if change.event == "DELETED":
                    del self._found[change.kind][item["metadata"]["name"]]
            for job_set in list(self._found["jobsets"].values()):
                # An object that has changed in the meantime is observed again.
                with contextlib.suppress(ApiError):
                    self._reconcile(job_set)

    def _reconcile(self, job_set):
        uid, status = job_set["metadata"]["uid"], job_set.get("status") or {}
        restarts = status.get("restarts", 0)
        jobs = [
            job
            for job in self._found["jobs"].values()
            if any(owner["uid"] == uid for owner in job["metadata"].get("ownerReferences", ()))
        ]
        current = [job for job in jobs if job["metadata"]["labels"][RESTARTS] == str(restarts)]
        if any(item["type"] in ("Completed", "Failed") for item in status.get("conditions", ())):
            self._delete(job for job in current if not _condition(job))
            return
        self._delete(job for job in jobs if job not in current)
        failed = [job for job in current if _condition(job).get("type") == "Failed"]
        if failed:
            self._apply_failure_policy(job_set, failed, restarts)
            return
        name = job_set["metadata"]["name"]
        wanted = {f"{name}-{job['name']}-0": job for job in job_set["spec"]["replicatedJobs"]}
        if sum(_condition(job).get("type") == "Complete" for job in current) == len(wanted):
            self._end(job_set, "Completed", "AllJobsCompleted", "jobset completed successfully")
            return
        if restarts and not current:
            self.may_restart.wait()
        existing = {job["metadata"]["name"] for job in jobs}
        for job_name, job in wanted.items():
            if job_name not in existing:
                self._create(job_set, job_name, job["template"], restarts)

    def _apply_failure_policy(self, job_set, failed, restarts):
        policy = job_set["spec"]["failurePolicy"]
        failed.sort(key=lambda job: _condition(job)["lastTransitionTime"])
        for rule in policy["rules"]:
            for job in failed:
                if _condition(job)["reason"] in rule["onJobFailureReasons"]:
                    text = "applying FailJobSet failure policy action"
                    self._fail(job_set, f"{rule['action']}FailurePolicyAction", text, job)
                    return
        if restarts >= policy["maxRestarts"]:
            text = "jobset failed due to reaching max number of restarts"
            self._fail(job_set, "ReachedMaxRestarts", text, failed[0])
            return
        counts = dict.fromkeys(("restarts", "restartsCountTowardsMax"), restarts + 1)
        self._set_status(job_set, counts)

    def _fail(self, job_set, reason, text, job):
        name = job["metadata"]["name"]
        self._end(job_set, "Failed", reason, f"{text} (first failed job: {name})")

    def _end(self, job_set, kind, reason, message):
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": _now(),
        }
        self._set_status(job_set, {"conditions": [condition], "terminalState": kind})

    def _set_status(self, job_set, status):
        # The next decisions follow from the new status.
        job_set["status"] = {**(job_set.get("status") or {}), **status}
        path = f"{self._job_sets}/{job_set['metadata']['name']}/status"
        self._api.call("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)

    def _create(self, job_set, name, template, restarts):
        owner = {
            "apiVersion": VERSION,
            "kind": "JobSet",
            "name": job_set["metadata"]["name"],
            "uid": job_set["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        labels = {RESTARTS: str(restarts), "jobset.sigs.k8s.io/jobset-name": owner["name"]}
        spec = template["spec"]
        pod = spec["template"]
        pod_labels = {**pod["metadata"]["labels"], **labels}
        body = {
            "metadata": {
                **template["metadata"],
                "name": name,
                "labels": {**template["metadata"]["labels"], **labels},
                "ownerReferences": [owner],
            },
            "spec": {
                **spec,
                "suspend": job_set["spec"].get("suspend", False),
                "template": {**pod, "metadata": {**pod["metadata"], "labels": pod_labels}},
            },
        }
        self._found["jobs"][name] = self._api.call("POST", self._jobs, body=body)

    def _delete(self, jobs):
        for job in list(jobs):
            if "deletionTimestamp" not in job["metadata"]:
                path = f"{self._jobs}/{job['metadata']['name']}"
                self._api.call("DELETE", path, body={"propagationPolicy": "Foreground"})


def _condition(job):
    """Return the condition of a Job that has finished, or an empty one."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition
    return {}
