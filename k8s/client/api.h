#pragma once
// Api: a client of the Kubernetes API, JSON in and JSON out.
//
// An Api owns one connection, and its calls block. One thread uses it. Reflector and LeaderElection
// have an Api each, so that neither a watch nor a lease waits for other requests. interrupt() and
// interrupted() are for any thread.
//
// Each request ends within its limits, except for the lookup of a name. After a 401 a request is
// sent once more if the token comes from a file, which is read again. list() begins again after a
// 410, and Connection resends on a stale connection. Nothing else is repeated.
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "k8s/client/api_error.h"
#include "k8s/client/connection.h"
#include "k8s/client/list_watch.h"
#include "k8s/client/server_access.h"

namespace allot::kube {

// Resource: a kind of objects as the API server addresses it. Values and pure functions; any
// thread.
struct Resource {
  std::string group;  // "" for core's: pods, secrets
  std::string version;
  std::string plural;
  std::string kind;

  std::string apiVersion() const { return group.empty() ? version : group + "/" + version; }
};

// Names an object. `space`: the object's namespace; "" for kinds without namespaces.
struct ObjectName {
  std::string space;
  std::string name;
};
ObjectName nameOf(const nlohmann::json& object);
// Returns "namespace/name", or the name alone: the key of an object in caches and queues.
std::string keyOf(const nlohmann::json& object);

// Returns "/apis/apps/v1/namespaces/NS/deployments/NAME/status". With an empty name it is the path
// of all objects of the namespace; with an empty namespace, of all namespaces. "BadRequest" for a
// name that is no segment of a path.
Reply<std::string> pathOf(const Resource& resource, const ObjectName& object = {},
                          const std::string& subresource = {});

// Encodes for a URL: all bytes except letters, digits and -._~ as %XX.
std::string percentEncoded(std::string_view text);

struct ListOptions {
  std::string label_selector = {};
  std::string field_selector = {};
  int page = 500;               // objects a request
  size_t most_items = 100'000;  // in total: more are "TooLarge"
  // Reduces each object as it is read, to save memory; null: objects are kept whole.
  std::function<nlohmann::json(nlohmann::json)> keep = {};
};

struct ObjectList {
  std::vector<nlohmann::json> items;  // each with apiVersion and kind
  std::string resource_version;       // of the list: a watch starts from it
};

struct ApplyOptions {
  std::string field_manager;
  bool force = true;             // takes fields that another manager owns
  std::string subresource = {};  // "status"
};

struct RemoveOptions {
  std::string propagation = "Background";  // or Foreground, Orphan
  // If given: the object is removed only if it has this uid and this resourceVersion.
  std::string uid = {};
  std::string resource_version = {};
};

struct WatchOptions {
  std::string resource_version;  // of a list, or of the last event or bookmark
  std::string label_selector = {};
  std::string field_selector = {};
  std::chrono::seconds timeout{300};  // after which the server ends the watch
  // The time after `timeout` at which this client ends the watch, because the server is gone.
  std::chrono::milliseconds grace{10'000};
};

class Api {
 public:
  explicit Api(const ServerAccess& access, Limits limits = {}, Clock clock = steadyClock());

  Reply<nlohmann::json> get(const Resource& resource, const ObjectName& object);
  // Returns all pages. If the server forgets the list between two pages (410) the call begins
  // again, at most twice. `space` "": of all namespaces.
  Reply<ObjectList> list(const Resource& resource, const std::string& space,
                         const ListOptions& options = {});

  // Does a server-side apply. `object` has every field that the manager wants to own. Fields that
  // the manager applied before and `object` lacks are released. Creates the object if there is
  // none.
  Reply<nlohmann::json> apply(const Resource& resource, const nlohmann::json& object,
                              const ApplyOptions& options);
  // Sets {"status": ...} by a merge patch on /status, also on servers below 1.22, where apply() on
  // /status is not reliable. With a resource_version, 409 if the object has another one by now.
  Reply<nlohmann::json> patchStatus(const Resource& resource, const ObjectName& object,
                                    const nlohmann::json& status,
                                    const std::string& resource_version = {});
  Reply<nlohmann::json> mergePatch(const Resource& resource, const ObjectName& object,
                                   const nlohmann::json& patch,
                                   const std::string& subresource = {});
  Reply<nlohmann::json> create(const Resource& resource, const nlohmann::json& object);
  // Replaces an object by its resourceVersion: "BadRequest" if it has none, 409 if it has changed
  // since it was read.
  Reply<nlohmann::json> replace(const Resource& resource, const nlohmann::json& object,
                                const std::string& subresource = {});
  // Removes an object; 404 if it is already gone.
  Reply<void> remove(const Resource& resource, const ObjectName& object,
                     const RemoveOptions& options = {});

  // Blocks, passes each event to `take`, and returns when the server ends the watch in good order.
  // Other ends are errors; after a 410 the caller must list again.
  Reply<void> watch(const Resource& resource, const std::string& space, const WatchOptions& options,
                    const std::function<void(WatchEvent)>& take);

  // Reads any other path: "/version", "/apis/GROUP/VERSION".
  Reply<nlohmann::json> getPath(const std::string& path);

  // Ends the current call and all later ones with "Interrupted".
  void interrupt() { connection_.interrupt(); }
  bool interrupted() const { return connection_.interrupted(); }

 private:
  using Send = std::function<Reply<HttpAnswer>(const std::string& token)>;

  Reply<nlohmann::json> ask(const HttpRequest& request);
  Reply<HttpAnswer> withToken(const Send& send);
  Reply<nlohmann::json> send(boost::beast::http::verb method, const Resource& resource,
                             const ObjectName& object, const std::string& subresource,
                             const std::string& query, const std::string& content_type,
                             const nlohmann::json& body);
  Reply<ObjectList> listOnce(const Resource& resource, const std::string& path,
                             const ListOptions& options);

  Limits limits_;
  Token token_;
  Connection connection_;
};

// Starts a thread that receives no signals: main waits for those. Any thread.
std::thread quietThread(std::function<void()> run);

}  // namespace allot::kube
