"""The volume that Redis's claim binds to in the test cluster, which has no provisioner."""
import os
import pathlib
import shutil

import yaml

from harness import kube, machines

NAME = "allot-e2e-redis"
USER = 65532  # images run as this user, and fsGroup does nothing on a hostPath


def folder(name=NAME):
    return pathlib.Path(os.environ["TESTCLUSTER_DIR"], "state", name)


def renew(name=NAME, claim=None):
    """An empty volume on node1, for a claim (namespace, name) or for the next that comes; elsewhere
    the cluster's own provisioner makes one."""
    if not machines.available():
        return
    held = {"claimRef": {"namespace": claim[0], "name": claim[1]}} if claim else {}
    kube.kubectl("delete", "persistentvolume", name, "--ignore-not-found", "--timeout=60s")
    shutil.rmtree(folder(name), ignore_errors=True)
    folder(name).mkdir(parents=True)
    os.chown(folder(name), USER, USER)
    node = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **held,
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder(name))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
        },
    }))
