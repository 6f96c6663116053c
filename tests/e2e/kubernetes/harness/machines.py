"""The test cluster's own scripts: what no kubectl can do to a node. Only there, not elsewhere."""
import os
import pathlib
import signal
import subprocess

SCRIPTS = os.environ.get("ALLOT_TESTCLUSTER", "")  # set by ./run when it brought the cluster up


def available():
    return bool(SCRIPTS)


def script(name, *arguments, timeout=180):
    done = subprocess.run([str(pathlib.Path(SCRIPTS, name)), *arguments], text=True,
                          timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(f"{name} {' '.join(arguments)}: {done.stdout.strip()}")
    return done.stdout


def number(node):
    """The test cluster names its nodes node1, node2, ..."""
    return node.removeprefix("node")


def kill_container(node, container_id):
    """SIGKILL for the container's first process, as the kernel would when memory runs out."""
    script("in-node.sh", number(node), "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL",
           container_id.removeprefix("containerd://"))


def cut_off(node):
    script("kill-node.sh", number(node))


def heal(node):
    script("heal-node.sh", number(node))


def kill_api_server():
    """SIGKILL; it stays away until start_again()."""
    pid = pathlib.Path(os.environ["TESTCLUSTER_DIR"], "run/kube-apiserver.pid").read_text().split()[0]
    os.kill(int(pid), signal.SIGKILL)


def start_again():
    """Whatever of the cluster does not run."""
    script("up.sh")


def pretend_gpus(node, count):
    script("pretend-gpus.sh", node, str(count))


class Process:
    """A container's first process, as the machine under the node sees it."""

    def __init__(self, pid):
        self.folder = pathlib.Path("/proc", str(pid))

    def status(self):
        lines = (self.folder / "status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def mount_options(self, path):
        for line in (self.folder / "mountinfo").read_text().splitlines():
            fields = line.split()
            if fields[4] == path:
                return fields[5].split(",")
        raise AssertionError(f"no mount at {path}")


def process_of(node, container_id):
    wanted = container_id.removeprefix("containerd://")
    for line in script("in-node.sh", number(node), "ctr", "-n", "k8s.io", "tasks",
                       "ls").splitlines():
        fields = line.split()
        if fields[0] == wanted:
            return Process(fields[1])
    raise AssertionError(f"no task {wanted} on {node}")
