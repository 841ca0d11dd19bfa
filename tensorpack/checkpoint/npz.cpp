// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/npz.h"

#include <torch/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tensorpack/checkpoint/detail/npy_header.h"
#include "tensorpack/checkpoint/detail/zip.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using detail::NpyHeader;
using detail::require;
using detail::ZipEntry;

constexpr std::string_view kExtension = ".npy";

void check_zip(const char* where, const fs::path& path) {
  TP_CHECK(detail::has_zip(), where,
           "'{}' is an npz file, and the library was built without zlib. Build again with zlib "
           "installed, or use safetensors.",
           path.string());
}

at::Tensor as_written(const std::string& name, const at::Tensor& tensor) {
  TP_CHECK(tensor.defined(), "write_npz", "'{}' is an undefined tensor. Give it a value.", name);
  TP_CHECK(tensor.layout() == at::kStrided, "write_npz",
           "'{}' is a sparse tensor, which NumPy does not have. Write its to_dense().", name);
  TP_CHECK(
      detail::npy_dtype_name(tensor.scalar_type()), "write_npz",
      "'{}' is of type {}, which NumPy does not have. Cast it to float32, or write safetensors.",
      name, c10::toString(tensor.scalar_type()));
  return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

void swap_bytes(char* bytes, size_t count, size_t element) {
  for (char* end = bytes + count; bytes < end; bytes += element) {
    std::reverse(bytes, bytes + element);
  }
}

at::Tensor to_tensor(std::string_view array) {
  const NpyHeader header = detail::take_npy_header(array);
  std::vector<int64_t> shape = header.shape;
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  at::Tensor tensor = at::empty(shape, header.dtype);
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  std::copy(array.begin(), array.end(), bytes);
  if (header.big_endian) swap_bytes(bytes, array.size(), c10::elementSize(header.dtype));
  // Any other byte in a bool is undefined behaviour in whatever reads it.
  require(header.dtype != at::kBool ||
              std::all_of(array.begin(), array.end(), [](char c) { return c == 0 || c == 1; }),
          "it is of type bool and has bytes other than 0 and 1");
  if (!header.fortran_order) return tensor;
  std::vector<int64_t> reversed(shape.size());
  for (size_t i = 0; i < reversed.size(); ++i)
    reversed[i] = static_cast<int64_t>(shape.size() - 1 - i);
  return tensor.permute(reversed).contiguous();
}

NamedTensors read(std::istream& in, uint64_t file_size) {
  NamedTensors tensors;
  for (const ZipEntry& entry : detail::read_zip_directory(in, file_size)) {
    std::string name = entry.name;
    if (name.ends_with(kExtension)) name.resize(name.size() - kExtension.size());
    require(!tensors.contains(name), "'{}' occurs twice", name);
    const std::string array = detail::read_zip_entry(in, entry);
    try {
      tensors.emplace(name, to_tensor(array));
    } catch (const detail::Malformed& error) {
      throw detail::malformed("in '{}', {}", name, error.what());
    }
  }
  return tensors;
}

}  // namespace

void write_npz(const fs::path& path, const NamedTensors& tensors) {
  check_zip("write_npz", path);
  write_file_atomically(path, [&](std::ostream& out) {
    detail::ZipWriter zip(out);
    for (const auto& [name, value] : tensors) {
      const at::Tensor tensor = as_written(name, value);
      const NpyHeader header{.dtype = tensor.scalar_type(), .shape = tensor.sizes().vec()};
      zip.add(name + std::string(kExtension), detail::format_npy_header(header), bytes_of(tensor));
    }
    zip.finish();
  });
}

NamedTensors read_npz(const fs::path& path) {
  check_zip("read_npz", path);
  std::error_code not_a_file;
  const auto size = fs::file_size(path, not_a_file);
  std::ifstream in(path, std::ios::binary);
  TP_CHECK(!not_a_file && in, "read_npz",
           "cannot open '{}': {}. Check the path and its permissions.", path.string(),
           not_a_file ? not_a_file.message() : std::strerror(errno));
  try {
    return read(in, size);
  } catch (const detail::Malformed& error) {
    throw make_error("read_npz",
                     "'{}' is not a valid npz file: {}. It is damaged or of another format; use "
                     "another file.",
                     path.string(), error.what());
  }
}

at::Tensor read_npy(const fs::path& path) {
  const std::string bytes = read_file(path);
  try {
    return to_tensor(bytes);
  } catch (const detail::Malformed& error) {
    throw make_error("read_npy",
                     "'{}' is not a valid npy file: {}. It is damaged or of another format; use "
                     "another file.",
                     path.string(), error.what());
  }
}

}  // namespace tensorpack
