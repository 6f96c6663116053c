#pragma once
// Api: a client of the Kubernetes API, JSON in and JSON out.
//
// An Api owns one connection, and its calls block; so one thread uses it, and who watches has
// another one (Reflector and LeaderElection do): neither a watch nor a lease then waits for other
// requests. interrupt() may come from any thread.
//
// Every call ends within its limits. A 401 is tried once more with the token as the file has it
// now. Nothing else is repeated here: when to try again is the caller's affair, who knows what else
// there is to do; ApiError says how long a server wants to be left alone.
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "k8s/client/api_error.h"
#include "k8s/client/connection.h"
#include "k8s/client/resource.h"
#include "k8s/client/server_access.h"
#include "k8s/client/watch_lines.h"

namespace allot::kube {

struct ListOptions {
  std::string label_selector = {};
  std::string field_selector = {};
  int page = 500;               // objects a request
  size_t most_items = 100'000;  // in all: more are "TooLarge"
  // What is kept of each object as it is read, where most of it would only take memory; null: all.
  std::function<nlohmann::json(nlohmann::json)> keep = {};
};

struct ObjectList {
  std::vector<nlohmann::json> items;  // each with apiVersion and kind
  std::string resource_version;       // of the list: what a watch starts from
};

struct ApplyOptions {
  std::string field_manager;
  bool force = true;             // takes fields that another manager owns
  std::string subresource = {};  // "status"
};

struct RemoveOptions {
  std::string propagation = "Background";  // or Foreground, Orphan
  // Where given: only this very object, and only in this state.
  std::string uid = {};
  std::string resource_version = {};
};

struct WatchOptions {
  std::string resource_version;  // of a list, or of the last event or bookmark
  std::string label_selector = {};
  std::string field_selector = {};
  std::chrono::seconds timeout{300};  // after which the server ends it
  // After so much more it is ended here: a server that neither speaks nor ends is gone.
  std::chrono::milliseconds grace{10'000};
};

class Api {
 public:
  explicit Api(const ServerAccess& access, Limits limits = {}, Clock clock = steadyClock());

  Reply<nlohmann::json> get(const Resource& resource, const ObjectName& object);
  // All pages. Where the server forgets the list between two pages (410) it begins again, three
  // times at most. `space` "": of all namespaces.
  Reply<ObjectList> list(const Resource& resource, const std::string& space,
                         const ListOptions& options = {});

  // Server-side apply: `object` holds every field that the manager wants to own. What it applied
  // before and leaves out now is given up. Makes the object if there is none.
  Reply<nlohmann::json> apply(const Resource& resource, const nlohmann::json& object,
                              const ApplyOptions& options);
  // {"status": ...} by a merge patch on /status, for servers whose managed fields of /status are
  // not to be trusted (below 1.22); elsewhere apply() with subresource "status" does the same. With
  // a resource_version it is a 409 if the object has changed since.
  Reply<nlohmann::json> patchStatus(const Resource& resource, const ObjectName& object,
                                    const nlohmann::json& status,
                                    const std::string& resource_version = {});
  Reply<nlohmann::json> mergePatch(const Resource& resource, const ObjectName& object,
                                   const nlohmann::json& patch,
                                   const std::string& subresource = {});
  Reply<nlohmann::json> create(const Resource& resource, const nlohmann::json& object);
  // With the resourceVersion of the object that was read: 409 if it has changed since.
  Reply<nlohmann::json> replace(const Resource& resource, const nlohmann::json& object,
                                const std::string& subresource = {});
  // 404 if it is gone already.
  Reply<void> remove(const Resource& resource, const ObjectName& object,
                     const RemoveOptions& options = {});

  // Blocks, gives each event to `take`, and returns when the server ends the watch in good order.
  // Errors: whatever ended it otherwise; 410 means that the list is to be made anew.
  Reply<void> watch(const Resource& resource, const std::string& space, const WatchOptions& options,
                    const std::function<void(WatchEvent)>& take);

  // Anything else: "/version", "/apis/GROUP/VERSION".
  Reply<nlohmann::json> getPath(const std::string& path);

  // Ends the call that goes on, and all later ones, with "Interrupted".
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
  // One attempt at all pages.
  Reply<ObjectList> listOnce(const Resource& resource, const std::string& path,
                             const ListOptions& options);

  Limits limits_;
  Token token_;
  Connection connection_;
};

}  // namespace allot::kube
