// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/collection.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// What is known of the collections of a graph after their calls. Towers may be called at once.
struct UserCollections {
  std::mutex mutex = {};
  std::vector<std::string> numbers = {};  // each collection by its number
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> names = {};  // by tower
};

// Collections of a call have numbers; those of the user come after the library's own.
Collection key_of(UserCollections& known, const std::string& collection) {
  constexpr int kFirst = 1000;
  auto found = std::find(known.numbers.begin(), known.numbers.end(), collection);
  if (found == known.numbers.end()) found = known.numbers.insert(found, collection);
  return static_cast<Collection>(kFirst + (found - known.numbers.begin()));
}

std::string name_of(TowerContext& tower, const at::Tensor& tensor) {
  const std::string name = tower.call().name_of(tensor);
  if (!name.empty()) return name;
  const Variable* variable = tower.graph().variables().owner_of(tensor);
  return variable == nullptr ? "" : variable->tower_free_name();
}

}  // namespace

at::Tensor add_to_collection(const std::string& collection, at::Tensor tensor) {
  TowerContext& tower = get_current_tower_context();
  TP_CHECK(!collection.empty(), "add_to_collection", "the collection has no name. Give it one.");
  const std::string name = name_of(tower, tensor);
  TP_CHECK(!name.empty(), "add_to_collection",
           "a tensor without a name is added to '{}', and nobody could find it afterwards. Give it "
           "one: add_to_collection(\"{}\", named(\"...\", tensor)).",
           collection, collection);
  UserCollections& known = tower.graph().attached<UserCollections>();
  const std::lock_guard lock(known.mutex);
  tower.call().add_to_collection(key_of(known, collection), name, tensor);
  std::vector<std::string>& names = known.names[{tower.name(), collection}];
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return tensor;
}

std::vector<at::Tensor> get_collection(const std::string& collection) {
  TowerContext& tower = get_current_tower_context();
  UserCollections& known = tower.graph().attached<UserCollections>();
  const std::lock_guard lock(known.mutex);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : tower.call().collection(key_of(known, collection))) {
    tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<std::string> collected_names(Graph& graph, const std::string& collection,
                                         const std::string& tower) {
  UserCollections& known = graph.attached<UserCollections>();
  const std::lock_guard lock(known.mutex);
  auto found = known.names.find({tower, collection});
  if (found == known.names.end() && tower.empty()) found = known.names.find({"tower0", collection});
  if (found != known.names.end()) return found->second;
  throw make_error("collected_names", "{} added nothing to a collection '{}'. {}",
                   tower.empty() ? "the tower function" : "tower '" + tower + "'", collection,
                   did_you_mean(collection, known.numbers));
}

}  // namespace tensorpack
