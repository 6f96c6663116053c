// allot-operator: runs the Experiments of a cluster. Options, and who leads.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>

#include "core/build.h"
#include "core/clocks.h"
#include "core/telemetry/process.h"
#include "core/telemetry/telemetry.h"
#include "k8s/client/leader_election.h"
#include "k8s/client/server_access.h"
#include "k8s/operator/controller.h"
#include "store/redis/acl.h"

namespace allot {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTurn{500};
constexpr uint16_t kStatusPort = 9464;
// An aggregator that is ready answers in milliseconds; others must not keep everybody waiting.
constexpr kube::Limits kAskLimits{.connect = milliseconds(1000), .request = milliseconds(2000)};

struct Options {
  std::string api;
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  std::string token_file;
  std::string lease_namespace;
  std::string status_url;
  ControllerOptions controller;
  TelemetryFlags telemetry{.options = {.port = 9464}};
};

Result<kube::ServerAccess> accessOf(const Options& options) {
  if (options.api.empty()) return kube::inCluster();
  ALLOT_ASSIGN(kube::ServerAccess access, kube::accessOf(options.api));
  access.ca_file = options.ca_file;
  access.certificate_file = options.certificate_file;
  access.key_file = options.key_file;
  access.token_file = options.token_file;
  return access;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Returns the document of /api/status, from the address by --status-url; nothing without an answer.
std::optional<nlohmann::json> ask(const std::string& url, const std::string& space,
                                  const std::string& name) {
  const auto access = kube::accessOf(replaced(replaced(url, "{name}", name), "{namespace}", space));
  if (!access) return std::nullopt;
  kube::Api api(*access, kAskLimits);
  auto document = api.getPath("/api/status");
  if (!document) {
    spdlog::debug("{}/{}: {}", space, name, document.error().message);
    return std::nullopt;
  }
  return std::move(*document);
}

Status lead(const Options& options, const kube::ServerAccess& access, Telemetry* telemetry) {
  std::atomic<bool> leads{false}, lost{false};
  kube::ElectionOptions election;
  election.lease = {
      options.lease_namespace.empty() ? access.own_namespace : options.lease_namespace,
      "allot-operator"};
  if (election.lease.space.empty()) {
    return badInput(
        "--lease-namespace: needed outside a cluster, for the Lease that says who leads");
  }
  ALLOT_ASSIGN(const auto elected, kube::LeaderElection::create(
                                       access, election, [&] { leads = true; },
                                       [&](const std::string& why) {
                                         spdlog::error("the lease is lost: {}", why);
                                         lost = true;
                                       }));
  ControllerOptions controlling = options.controller;
  controlling.instance = elected->identity();
  controlling.unix_ms = unixMs;
  controlling.passwords = newPasswords;
  controlling.ask = [url = options.status_url](const std::string& space, const std::string& name) {
    return ask(url, space, name);
  };
  elected->start();
  std::unique_ptr<Controller> controller;
  std::string told;
  while (!draining && !lost) {
    telemetry->health().progress();
    if (!leads) {
      telemetry->health().waiting("another operator leads");
      std::this_thread::sleep_for(milliseconds(100));
      continue;
    }
    if (!controller) {
      spdlog::info("leads as {}", elected->identity());
      controller = std::make_unique<Controller>(access, controlling);
    }
    // leads() is false before `lost` is set: nothing is written in between.
    if (elected->leads()) controller->turn(kTurn);
    if (const std::string why = controller->problem(); why != told) {
      if (!why.empty()) spdlog::error("{}", why);
      told = why;
    }
    // The API server has the part of the store in the health of an operator.
    if (told.empty()) {
      telemetry->health().storeAnswered();
      telemetry->health().ready();
    } else {
      telemetry->health().unready(told);
    }
  }
  if (lost) return fail(ErrorCode::kFenced, "another operator leads now");
  return {};
}

Status operate(const Options& options) {
  ALLOT_ASSIGN(const kube::ServerAccess access, accessOf(options));
  ALLOT_ASSIGN(const auto telemetry, Telemetry::start(options.telemetry.options));
  return lead(options, access, telemetry.get());
}

void addOptions(CLI::App* app, Options* options) {
  app->add_option("--namespaces", options->controller.namespaces,
                  "Experiments of these alone, separated by commas [all of the cluster]")
      ->delimiter(',');
  app->add_option("--registry", options->controller.registry,
                  "Where images come from, where an experiment does not say [localhost]");
  app->add_option("--tag", options->controller.tag,
                  "Their tag, where an experiment does not say [this version]");
  app->add_option("--api", options->api,
                  "API server, as https://host:6443 [the one of the cluster that this runs in]");
  app->add_option("--ca", options->ca_file, "With --api: PEM file of who signs for it");
  app->add_option("--certificate", options->certificate_file, "With --api: PEM file of who we are");
  app->add_option("--key", options->key_file, "With --api: its key");
  app->add_option("--token-file", options->token_file, "With --api: a token instead");
  app->add_option("--lease-namespace", options->lease_namespace,
                  "Where the Lease is that says which operator leads [its own namespace]");
  app->add_option("--status-url", options->status_url,
                  "Where a run's aggregator answers [" + options->status_url + "]");
  options->telemetry.add(app);
}

int main(int argc, char** argv) {
  CLI::App app(
      "allot-operator: makes of each Experiment in a cluster the objects that run it, and says in "
      "its status how it is.\n\n"
      "Example: allot-operator --namespaces team-a,team-b --registry registry.example.org/allot");
  app.set_version_flag("--version", buildText());
  Options options;
  options.status_url = "http://{name}-aggregator.{namespace}:" + std::to_string(kStatusPort);
  addOptions(&app, &options);
  return runProcess("allot-operator", &app, options.telemetry, argc, argv,
                    [&] { return operate(options); });
}

}  // namespace
}  // namespace allot

int main(int argc, char** argv) { return allot::main(argc, argv); }
