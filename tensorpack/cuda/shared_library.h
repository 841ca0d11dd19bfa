// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {

/// A library of CUDA's that is opened at run time, and stays open.
class SharedLibrary {
 public:
  /// Opens the first that is there. Throws Error, in the name of `where`, if none is.
  SharedLibrary(const char* where, std::string name, const std::vector<std::string>& places);

  template <typename Function>
  void find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    TP_CHECK(function != nullptr, where_, "{} has no function {}. Install a newer one.", name_,
             symbol);
  }

 private:
  const char* where_;
  std::string name_;
  void* handle_ = nullptr;
};

/// Where a library may be: `lib<name>.so.13` and the like on the loader's path, and the folders of
/// the wheels beside libtorch's, which the loader does not search. Versions are CUDA's, if no
/// others are given.
std::vector<std::string> places_of(const std::string& name,
                                   const std::vector<std::string>& versions = {"13", "12"});

/// The path of a library that lies beside libtorch itself.
std::string beside_libtorch(const std::string& file);

}  // namespace tensorpack::cuda
