#include "k8s/client/api.h"

#include <signal.h>

#include <charconv>
#include <utility>

#include "core/json_text.h"

namespace allot::kube {
namespace {

constexpr size_t kLongestName = 253;

bool isPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

// Kubernetes' own rule for a name that is part of a path, with an upper limit.
bool isSegment(const std::string& text) {
  return !text.empty() && text.size() <= kLongestName && text != "." && text != ".." &&
         text.find_first_of("/%") == std::string::npos;
}

namespace http = boost::beast::http;
using nlohmann::json;

constexpr int kListAttempts = 3;
constexpr const char* kApplyPatch = "application/apply-patch+yaml";  // which JSON is, too
constexpr const char* kMergePatch = "application/merge-patch+json";
constexpr const char* kJson = "application/json";

tl::unexpected<ApiError> pass(ApiError error) { return tl::unexpected<ApiError>(std::move(error)); }

std::string textOf(const HttpRequest& request) {
  return std::string(http::to_string(request.method)) + " " + request.target;
}

// Never throws, whatever bytes there are.
std::string written(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// An answer with another status than 2xx.
ApiError refusal(const HttpAnswer& answer, const std::string& request) {
  ApiError error;
  const auto status = parseJson(answer.body, "the answer");
  if (status && textAt(*status, {"kind"}) == "Status") {
    error = errorFromStatus(*status, answer.status, request);
  } else {  // of a proxy, or of a server that is starting
    error.message = request + ": " + std::to_string(answer.status) + ": " +
                    serverText(std::string_view(answer.body).substr(0, 200));
  }
  error.code = answer.status;
  int seconds = 0;
  const char* end = answer.retry_after.data() + answer.retry_after.size();
  if (std::from_chars(answer.retry_after.data(), end, seconds).ec == std::errc() && seconds > 0) {
    error.retry_after = cappedRetryAfter(seconds);
  }
  return error;
}

std::string selectorQuery(const std::string& labels, const std::string& fields) {
  std::string query;
  if (!labels.empty()) query += "&labelSelector=" + percentEncoded(labels);
  if (!fields.empty()) query += "&fieldSelector=" + percentEncoded(fields);
  return query;
}

}  // namespace

ObjectName nameOf(const nlohmann::json& object) {
  return {textAt(object, {"metadata", "namespace"}), textAt(object, {"metadata", "name"})};
}

std::string keyOf(const nlohmann::json& object) {
  const ObjectName name = nameOf(object);
  return name.space.empty() ? name.name : name.space + "/" + name.name;
}

Reply<std::string> pathOf(const Resource& resource, const ObjectName& object,
                          const std::string& subresource) {
  std::string path = resource.group.empty() ? "/api/" + resource.version
                                            : "/apis/" + resource.group + "/" + resource.version;
  const auto add = [&path](const std::string& text) { path += "/" + percentEncoded(text); };
  for (const std::string* text : {&object.space, &object.name}) {
    if (!text->empty() && !isSegment(*text)) {
      return noAnswer("BadRequest", "\"" + serverText(*text) + "\" is no name of a " +
                                        resource.kind + ": it holds a slash or is too long");
    }
  }
  if (!object.space.empty()) {
    path += "/namespaces";
    add(object.space);
  }
  add(resource.plural);
  if (!object.name.empty()) add(object.name);
  if (!subresource.empty()) add(subresource);
  return path;
}

std::string percentEncoded(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (isPlain(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4u], kDigits[byte & 15u]};
    }
  }
  return out;
}

Api::Api(const ServerAccess& access, Limits limits, Clock clock)
    : limits_(limits), token_(access, std::move(clock)), connection_(access, limits) {}

Reply<HttpAnswer> Api::withToken(const Send& send) {
  for (bool again = false;; again = true) {
    const auto token = token_.get();
    if (!token) return noAnswer("BadRequest", token.error().message);
    auto answer = send(*token);
    if (!answer || answer->status != 401 || again || !token_.isFile()) return answer;
    token_.forget();
  }
}

Reply<json> Api::ask(const HttpRequest& request) {
  auto answer = withToken([&](const std::string& t) { return connection_.ask(request, t); });
  if (!answer) return pass(std::move(answer.error()));
  if (answer->status < 200 || answer->status > 299) return pass(refusal(*answer, textOf(request)));
  auto value = parseJson(answer->body, textOf(request));
  if (!value) return noAnswer("BadAnswer", serverText(value.error().message));
  if (!value->is_object()) return noAnswer("BadAnswer", textOf(request) + ": answered no object");
  return std::move(*value);
}

Reply<json> Api::send(http::verb method, const Resource& resource, const ObjectName& object,
                      const std::string& subresource, const std::string& query,
                      const std::string& content_type, const json& body) {
  if (object.name.empty() && method != http::verb::post) {
    return noAnswer("BadRequest", "a request for one " + resource.kind + " names none");
  }
  auto path = pathOf(resource, method == http::verb::post ? ObjectName{object.space, ""} : object,
                     subresource);
  if (!path) return pass(std::move(path.error()));
  const bool empty = content_type.empty();
  return ask({method, *path + query, content_type, empty ? std::string() : written(body)});
}

Reply<json> Api::get(const Resource& resource, const ObjectName& object) {
  return send(http::verb::get, resource, object, {}, {}, {}, {});
}

Reply<json> Api::getPath(const std::string& path) { return ask({http::verb::get, path}); }

Reply<ObjectList> Api::list(const Resource& resource, const std::string& space,
                            const ListOptions& options) {
  const auto path = pathOf(resource, {space, ""});
  if (!path) return pass(path.error());
  for (int attempt = 1;; ++attempt) {
    auto list = listOnce(resource, *path, options);
    if (list || !list.error().expired() || attempt == kListAttempts) return list;
  }
}

Reply<ObjectList> Api::listOnce(const Resource& resource, const std::string& path,
                                const ListOptions& options) {
  const std::string query = "?limit=" + std::to_string(options.page) +
                            selectorQuery(options.label_selector, options.field_selector);
  ObjectList list;
  std::string token;
  do {
    auto page = ask({http::verb::get,
                     path + query + (token.empty() ? "" : "&continue=" + percentEncoded(token))});
    if (!page) return pass(std::move(page.error()));
    const auto items = page->find("items");
    if (items == page->end() || !(items->is_array() || items->is_null())) {
      return noAnswer("BadAnswer", "GET " + path + ": the answer is no list");
    }
    for (json& item : *items) {
      if (!item.is_object() || textAt(item, {"metadata", "name"}).empty()) {
        return noAnswer("BadAnswer", "GET " + path + ": the list holds what is no object");
      }
      // Servers leave these out of lists.
      item["apiVersion"] = resource.apiVersion();
      item["kind"] = resource.kind;
      list.items.push_back(options.keep ? options.keep(std::move(item)) : std::move(item));
    }
    if (list.items.size() > options.most_items) {
      return noAnswer("TooLarge", "GET " + path + ": the list has more than " +
                                      std::to_string(options.most_items) + " objects");
    }
    list.resource_version = textAt(*page, {"metadata", "resourceVersion"});
    std::string next = textAt(*page, {"metadata", "continue"});
    if (!next.empty() && (items->empty() || next == token)) {
      return noAnswer("BadAnswer", "GET " + path + ": the list does not go on");
    }
    token = std::move(next);
  } while (!token.empty());
  if (list.resource_version.empty()) {
    return noAnswer("BadAnswer", "GET " + path + ": the list has no resourceVersion");
  }
  return list;
}

Reply<json> Api::apply(const Resource& resource, const json& object, const ApplyOptions& options) {
  const std::string query = "?fieldManager=" + percentEncoded(options.field_manager) +
                            (options.force ? "&force=true" : "");
  return send(http::verb::patch, resource, nameOf(object), options.subresource, query, kApplyPatch,
              object);
}

Reply<json> Api::patchStatus(const Resource& resource, const ObjectName& object, const json& status,
                             const std::string& resource_version) {
  json patch = {{"status", status}};
  if (!resource_version.empty()) patch["metadata"] = {{"resourceVersion", resource_version}};
  return mergePatch(resource, object, patch, "status");
}

Reply<json> Api::mergePatch(const Resource& resource, const ObjectName& object, const json& patch,
                            const std::string& subresource) {
  return send(http::verb::patch, resource, object, subresource, {}, kMergePatch, patch);
}

Reply<json> Api::create(const Resource& resource, const json& object) {
  return send(http::verb::post, resource, nameOf(object), {}, {}, kJson, object);
}

Reply<json> Api::replace(const Resource& resource, const json& object,
                         const std::string& subresource) {
  if (textAt(object, {"metadata", "resourceVersion"}).empty()) {
    return noAnswer("BadRequest", "a " + resource.kind +
                                      " is replaced only as it was read: it needs its "
                                      "metadata.resourceVersion");
  }
  return send(http::verb::put, resource, nameOf(object), subresource, {}, kJson, object);
}

Reply<void> Api::remove(const Resource& resource, const ObjectName& object,
                        const RemoveOptions& options) {
  json body = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", options.propagation}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  auto answer = send(http::verb::delete_, resource, object, {}, {}, kJson, body);
  if (!answer) return pass(std::move(answer.error()));
  return {};
}

Reply<void> Api::watch(const Resource& resource, const std::string& space,
                       const WatchOptions& options, const std::function<void(WatchEvent)>& take) {
  const auto path = pathOf(resource, {space, ""});
  if (!path) return pass(path.error());
  const HttpRequest request{http::verb::get,
                            *path + "?watch=true&allowWatchBookmarks=true&resourceVersion=" +
                                percentEncoded(options.resource_version) +
                                "&timeoutSeconds=" + std::to_string(options.timeout.count()) +
                                selectorQuery(options.label_selector, options.field_selector)};
  WatchLines lines(limits_.line_bytes);
  const auto feed = [&](std::string_view bytes) { return lines.feed(bytes, take); };
  auto answer = withToken([&](const std::string& token) {
    return connection_.stream(request, token, options.timeout + options.grace, feed);
  });
  if (!answer) return pass(std::move(answer.error()));
  if (answer->status != 200) return pass(refusal(*answer, textOf(request)));
  if (lines.insideLine()) {
    return noAnswer("Unavailable", textOf(request) + ": the watch ended within a line");
  }
  return {};
}

std::thread quietThread(std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(run));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace allot::kube
