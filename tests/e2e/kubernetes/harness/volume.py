"""The volume that Redis's claim binds to in the test cluster, which has no provisioner."""
import os
import pathlib
import shutil

import yaml

from harness import kube, machines

NAME = "allot-e2e-redis"
USER = 65532  # images run as this user, and fsGroup does nothing on a hostPath


def folder():
    return pathlib.Path(os.environ["TESTCLUSTER_DIR"], "state", NAME)


def renew():
    """An empty volume on node1; elsewhere the cluster's own provisioner makes one."""
    if not machines.available():
        return
    kube.kubectl("delete", "persistentvolume", NAME, "--ignore-not-found", "--timeout=60s")
    shutil.rmtree(folder(), ignore_errors=True)
    folder().mkdir(parents=True)
    os.chown(folder(), USER, USER)
    node = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}
    kube.kubectl("apply", "-f", "-", stdin=yaml.safe_dump({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": NAME},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder())},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
        },
    }))
