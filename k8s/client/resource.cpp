#include "k8s/client/resource.h"

#include <nlohmann/json.hpp>

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

}  // namespace allot::kube
