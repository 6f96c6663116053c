"""Ways to break manifests, and which check must see it:
name -> (what to do to a rendering with all components, check)."""
import checks

BREAKAGES = {}


def found_by(check):
    def add(breakage):
        BREAKAGES[breakage.__name__] = breakage, check
        return breakage
    return add


def pod(rendering, component):
    return rendering.workload(component)["spec"]["template"]["spec"]


def container(rendering, component):
    return pod(rendering, component)["containers"][0]


def policy(rendering, end):
    return next(item["spec"] for item in rendering.of("NetworkPolicy")
                if item["metadata"]["name"].endswith(end))


def service(rendering, end):
    return rendering.find("Service", f"{rendering.experiment}-{end}")


def replace_argument(rendering, component, old, new):
    args = container(rendering, component)["args"]
    args[:] = [argument.replace(old, new) for argument in args]


@found_by(checks.valid_by_the_schema)
def a_misspelt_field(rendering):
    container(rendering, "worker")["imagePulPolicy"] = "Never"


@found_by(checks.valid_by_the_schema)
def a_number_for_a_word(rendering):
    container(rendering, "worker")["env"][-1]["value"] = 1


@found_by(checks.valid_by_the_schema)
def a_word_for_a_number(rendering):
    pod(rendering, "worker")["terminationGracePeriodSeconds"] = "120"


@found_by(checks.valid_by_the_schema)
def a_container_without_a_name(rendering):
    del container(rendering, "store")["name"]


@found_by(checks.valid_by_the_schema)
def an_api_that_old_clusters_lack(rendering):
    rendering.workload("worker")["apiVersion"] = "apps/v2"


@found_by(checks.valid_by_the_schema)
def a_monitor_that_selects_nothing(rendering):
    del rendering.of("PodMonitor")[0]["spec"]["selector"]


@found_by(checks.names_are_the_experiments)
def an_object_in_another_namespace(rendering):
    rendering.of("ConfigMap")[0]["metadata"]["namespace"] = "default"


@found_by(checks.names_are_the_experiments)
def somebody_elses_namespace(rendering):
    rendering.of("Namespace")[0]["metadata"]["name"] = "default"


@found_by(checks.names_are_the_experiments)
def a_name_without_the_prefix(rendering):
    rendering.of("Service")[0]["metadata"]["name"] = "aggregator"


@found_by(checks.labels_are_complete)
def an_object_without_a_label(rendering):
    del rendering.of("Secret")[0]["metadata"]["labels"]["app.kubernetes.io/component"]


@found_by(checks.labels_are_complete)
def an_object_of_another_version(rendering):
    rendering.workload("store")["metadata"]["labels"]["app.kubernetes.io/version"] = "0.0.9"


@found_by(checks.labels_are_complete)
def pods_of_no_experiment(rendering):
    del rendering.workload("worker")["spec"]["template"]["metadata"]["labels"]["allot.dev/experiment"]


@found_by(checks.nothing_that_cannot_change_names_a_version)
def pods_that_every_version_replaces(rendering):
    labels = rendering.workload("store")["spec"]["template"]["metadata"]["labels"]
    labels["app.kubernetes.io/version"] = rendering.source.version


@found_by(checks.nobody_else_is_selected)
def a_monitor_of_every_experiment(rendering):
    del rendering.of("PodMonitor")[0]["spec"]["selector"]["matchLabels"]["allot.dev/experiment"]
    del rendering.of("PodMonitor")[0]["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"]


@found_by(checks.nobody_else_is_selected)
def a_deny_for_the_whole_namespace(rendering):
    policy(rendering, "default-deny")["podSelector"] = {}


@found_by(checks.only_the_named_flows)
def a_deny_that_strangers_notice(rendering):
    policy(rendering, "default-deny")["podSelector"] = {}


@found_by(checks.only_the_named_flows)
def metrics_for_strangers_that_look_like_workers(rendering):
    del policy(rendering, "metrics-from-prometheus")["podSelector"]["matchLabels"]


@found_by(checks.nobody_else_is_selected)
def a_store_for_every_experiment(rendering):
    peers = policy(rendering, "redis-from-worker-and-aggregator")["ingress"][0]["from"]
    peers[0]["podSelector"] = {"matchLabels": {"app.kubernetes.io/component": "worker"}}


@found_by(checks.only_the_named_flows)
def dns_that_old_clusters_close(rendering):
    del policy(rendering, "to-dns")["egress"][0]["to"][1]


@found_by(checks.autoscalers_know_what_may_go)
def a_store_that_may_be_moved(rendering):
    rendering.workload("store")["spec"]["template"]["metadata"]["annotations"] = {}


@found_by(checks.autoscalers_know_what_may_go)
def workers_that_keep_their_node(rendering):
    annotations = rendering.workload("worker")["spec"]["template"]["metadata"]["annotations"]
    annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"


@found_by(checks.nothing_that_cannot_change_names_a_version)
def a_selector_with_a_version(rendering):
    labels = rendering.workload("worker")["spec"]["selector"]["matchLabels"]
    labels["app.kubernetes.io/version"] = "0.1.0"


@found_by(checks.nothing_that_cannot_change_names_a_version)
def a_volume_with_a_version(rendering):
    claim = rendering.workload("store")["spec"]["volumeClaimTemplates"][0]
    claim["metadata"]["labels"]["app.kubernetes.io/version"] = "0.1.0"


@found_by(checks.selectors_match)
def a_deployment_that_selects_others(rendering):
    labels = rendering.workload("worker")["spec"]["selector"]["matchLabels"]
    labels["app.kubernetes.io/component"] = "aggregator"


@found_by(checks.selectors_match)
def a_service_for_everybody(rendering):
    del service(rendering, "redis")["spec"]["selector"]["app.kubernetes.io/component"]


@found_by(checks.selectors_match)
def a_budget_for_nobody(rendering):
    labels = rendering.of("PodDisruptionBudget")[0]["spec"]["selector"]["matchLabels"]
    labels["app.kubernetes.io/name"] = "other"


@found_by(checks.ports_exist)
def a_service_that_leads_nowhere(rendering):
    service(rendering, "aggregator")["spec"]["ports"][0]["targetPort"] = "http"


@found_by(checks.ports_exist)
def a_probe_of_no_port(rendering):
    container(rendering, "worker")["livenessProbe"]["httpGet"]["port"] = "health"


@found_by(checks.what_is_referred_to_exists)
def a_missing_config(rendering):
    rendering.objects.remove(rendering.of("ConfigMap")[0])


@found_by(checks.what_is_referred_to_exists)
def a_missing_key(rendering):
    del rendering.of("Secret")[0]["data"]["worker.password"]


@found_by(checks.what_is_referred_to_exists)
def a_mount_of_no_volume(rendering):
    container(rendering, "aggregator")["volumeMounts"][0]["name"] = "other"


@found_by(checks.images_are_of_this_version)
def an_image_tagged_latest(rendering):
    container(rendering, "store")["image"] = "localhost/allot-redis:latest"


@found_by(checks.images_are_of_this_version)
def somebody_elses_image(rendering):
    container(rendering, "store")["image"] = "localhost/redis:0.1.0"


@found_by(checks.images_are_of_this_version)
def gpu_workers_without_cuda(rendering):
    container(rendering, "worker")["image"] = "localhost/allot-worker:0.1.0"


@found_by(checks.pods_are_restricted)
def a_namespace_that_only_warns(rendering):
    labels = rendering.of("Namespace")[0]["metadata"]["labels"]
    del labels["pod-security.kubernetes.io/enforce"]


@found_by(checks.pods_are_restricted)
def root(rendering):
    pod(rendering, "aggregator")["securityContext"]["runAsUser"] = 0


@found_by(checks.pods_are_restricted)
def a_kept_capability(rendering):
    container(rendering, "worker")["securityContext"]["capabilities"] = {"drop": ["NET_RAW"]}


@found_by(checks.pods_are_restricted)
def a_root_to_write_to(rendering):
    del container(rendering, "worker")["securityContext"]["readOnlyRootFilesystem"]


@found_by(checks.pods_are_restricted)
def a_folder_of_the_node(rendering):
    pod(rendering, "worker")["volumes"].append({"name": "x", "hostPath": {"path": "/"}})


@found_by(checks.no_pod_speaks_to_the_api)
def a_token_in_a_worker(rendering):
    del pod(rendering, "worker")["automountServiceAccountToken"]


@found_by(checks.resources_are_bounded)
def memory_without_a_limit(rendering):
    del container(rendering, "aggregator")["resources"]["limits"]["memory"]


@found_by(checks.resources_are_bounded)
def a_store_that_fills_its_limit(rendering):
    container(rendering, "store")["resources"]["limits"]["memory"] = "400Mi"


@found_by(checks.resources_are_bounded)
def keys_and_values_beyond_the_limit(rendering):
    for entry in container(rendering, "worker")["env"]:
        if entry["name"] == "KV_MEMORY_MIB":
            entry["value"] = "9000"


@found_by(checks.resources_are_bounded)
def gpu_workers_without_a_gpu(rendering):
    del container(rendering, "worker")["resources"]["limits"]["nvidia.com/gpu"]


@found_by(checks.probes_are_there)
def liveness_by_readiness(rendering):
    container(rendering, "worker")["livenessProbe"]["httpGet"]["path"] = "/readyz"


@found_by(checks.probes_are_there)
def no_time_to_load(rendering):
    del container(rendering, "worker")["startupProbe"]


@found_by(checks.probes_are_there)
def a_startup_probe_that_guards_nothing(rendering):
    container(rendering, "worker")["startupProbe"]["httpGet"]["path"] = "/livez"


@found_by(checks.probes_are_there)
def half_the_time_to_load(rendering):
    container(rendering, "worker")["startupProbe"]["failureThreshold"] //= 2


@found_by(checks.scaling_and_endings)
def replicas_of_the_worker(rendering):
    rendering.workload("worker")["spec"]["replicas"] = 2


@found_by(checks.scaling_and_endings)
def a_rolling_aggregator(rendering):
    rendering.workload("aggregator")["spec"]["strategy"] = {"type": "RollingUpdate"}


@found_by(checks.scaling_and_endings)
def a_grace_that_nobody_can_change(rendering):
    replace_argument(rendering, "worker", "$(GRACE_SECONDS)", "100")


@found_by(checks.scaling_and_endings)
def too_little_grace(rendering):
    pod(rendering, "worker")["terminationGracePeriodSeconds"] = 60


@found_by(checks.only_the_named_flows)
def no_default_deny(rendering):
    rendering.objects[:] = [item for item in rendering.objects
                            if not item["metadata"]["name"].endswith("default-deny")]


@found_by(checks.only_the_named_flows)
def a_store_open_to_all(rendering):
    del policy(rendering, "redis-from-worker-and-aggregator")["ingress"][0]["from"]


@found_by(checks.only_the_named_flows)
def metrics_open_to_all_namespaces(rendering):
    policy(rendering, "metrics-from-prometheus")["ingress"][0]["from"] = [{"namespaceSelector": {}}]


@found_by(checks.only_the_named_flows)
def a_worker_that_cannot_reach_the_store(rendering):
    policy(rendering, "worker-to-redis")["egress"][0]["ports"][0]["port"] = "other"


@found_by(checks.only_the_named_flows)
def dns_without_udp(rendering):
    del policy(rendering, "to-dns")["egress"][0]["ports"][0]


@found_by(checks.arguments_are_the_programs_own)
def an_option_that_is_none(rendering):
    container(rendering, "worker")["args"].append("--gpu-memory=9")


@found_by(checks.arguments_are_the_programs_own)
def a_variable_that_is_not_set(rendering):
    replace_argument(rendering, "worker", "POD_NAME", "HOST")


@found_by(checks.arguments_are_the_programs_own)
def another_port(rendering):
    replace_argument(rendering, "aggregator", "9464", "9465")


@found_by(checks.the_store_is_found)
def another_user(rendering):
    replace_argument(rendering, "worker", "worker@", "admin@")


@found_by(checks.the_store_is_found)
def another_host(rendering):
    replace_argument(rendering, "worker", "-redis:", "-store:")


@found_by(checks.the_store_is_found)
def a_worker_with_the_aggregators_password(rendering):
    secret = pod(rendering, "worker")["volumes"][0]["secret"]
    secret["items"].append({"key": "aggregator.password", "path": "aggregator.password"})


@found_by(checks.the_store_is_found)
def a_worker_with_the_stores_private_key(rendering):
    secret = pod(rendering, "worker")["volumes"][-1]["secret"]
    secret["items"].append({"key": "tls.key", "path": "tls.key"})


@found_by(checks.the_store_is_found)
def a_worker_without_tls(rendering):
    replace_argument(rendering, "worker", "rediss:", "redis:")


@found_by(checks.the_store_is_found)
def a_store_that_listens_without_tls_as_well(rendering):
    config = rendering.find("ConfigMap", f"{rendering.experiment}-redis")
    config["data"]["redis.conf"] = config["data"]["redis.conf"].replace("port 0", "port 6380")


@found_by(checks.probes_are_there)
def a_probe_without_tls(rendering):
    command = container(rendering, "store")["readinessProbe"]["exec"]["command"]
    command[2] = command[2].replace(" --tls --insecure", "")


@found_by(checks.the_store_is_found)
def a_store_without_users(rendering):
    config = next(item for item in rendering.of("ConfigMap") if "redis.conf" in item["data"])
    config["data"]["redis.conf"] = config["data"]["redis.conf"].replace("aclfile", "# aclfile")


@found_by(checks.another_configuration_replaces_the_store)
def a_configuration_that_no_pod_is_started_for(rendering):
    config = rendering.find("ConfigMap", f"{rendering.experiment}-redis")
    config["data"]["redis.conf"] += "maxclients 100\n"


@found_by(checks.the_experiment_is_the_file)
def another_experiment(rendering):
    config = rendering.find("ConfigMap", f"{rendering.experiment}-experiment")
    config["data"]["experiment.yaml"] = "metadata: {name: other}\n"


@found_by(checks.the_experiment_is_the_file)
def a_hash_in_the_experiments_name(rendering):
    config = rendering.find("ConfigMap", f"{rendering.experiment}-experiment")
    config["metadata"]["name"] += "-5486k7c472"
