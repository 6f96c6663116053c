"""A pod's last words: its metrics, log and exit status while it ends."""
import contextlib
import http.client
import re
import subprocess
import threading
import time

from harness import kube, report


class End:
    def __init__(self, experiment, pod):
        self.metrics = None  # of the last scrape that was answered
        self.log = ""
        self.exit_code = None
        self.seen = []  # what the watch said: an exit code, nothing yet, an error
        self.experiment = experiment
        self.pod = pod
        self.gone = threading.Event()

    def scrape(self, address):
        connection = http.client.HTTPConnection(address, timeout=5)
        while not self.gone.is_set():
            try:
                connection.request("GET", "/metrics")
                self.metrics = kube.Metrics(connection.getresponse().read().decode())
            except (OSError, http.client.HTTPException):
                return
            time.sleep(0.02)

    def watch(self, lines):
        for line in lines:
            self.seen.append(line.strip())
            if line.strip().isdigit():
                self.exit_code = int(line)

    def wait(self, seconds):
        x, name = self.experiment, self.pod.name
        kube.until(f"{name} is gone", lambda: not any(
            each.uid == self.pod.uid for each in x.pods("worker")), seconds, every=0.2)
        self.gone.set()
        # The kubelet reports the exit code and removes the pod in one go: the watch may still be
        # busy with the former when the latter is seen.
        stopwatch = report.Stopwatch()
        while self.exit_code is None and stopwatch.seconds() < 3:
            time.sleep(0.05)

    def exit_status(self):
        """The exit code; where the API server was not told one, what the log's end says of it.

        A kubelet (1.20's, now and then) removes the containers of a deleted pod before it reports
        how they ended, and then never does. Needs the end of watched_end()'s context.
        """
        if self.exit_code is not None:
            return self.exit_code
        # Behind it `kubectl logs` may complain that the container is no more.
        found = re.search(r"ended, exit code (\d+)", self.log)
        if not found:
            raise AssertionError(f"no exit code of {self.pod.name}: its watch said {self.seen}, "
                                 f"its log ended {self.log[-500:]!r}")
        report.note("pods whose exit code the kubelet did not report", self.pod.name)
        return int(found[1])


@contextlib.contextmanager
def watched_end(experiment, pod):
    """Scrapes, reads and watches the pod while the context lasts; it is to be deleted in it."""
    end = End(experiment, pod)
    base = ["kubectl", "-n", experiment.namespace]
    code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}{\"\\n\"}"
    log = subprocess.Popen([*base, "logs", "-f", "--tail=1", pod.name], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    watch = subprocess.Popen([*base, "get", "pod", pod.name, "--watch", "-o", code], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with kube.forwarded(experiment.namespace, f"pod/{pod.name}") as address:
        threads = [threading.Thread(target=end.scrape, args=(address,)),
                   threading.Thread(target=end.watch, args=(watch.stdout,))]
        for each in threads:
            each.start()
        try:
            yield end
        finally:
            end.gone.set()
            watch.terminate()
            end.log = log.communicate(timeout=30)[0]
            for each in threads:
                each.join()
            watch.wait()
