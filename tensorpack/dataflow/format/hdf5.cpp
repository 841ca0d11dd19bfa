// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/hdf5.h"

#include <hdf5.h>
#include <torch/types.h>

#include "tensorpack/dataflow/detail/padding.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

// An object of HDF5, closed at the end of its scope.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }  // NOLINT: as HDF5's functions take it
  bool is_valid() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// HDF5 prints its errors; ours say the same in a line.
void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

hid_t native_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return H5T_NATIVE_UINT8;
    case at::kChar:
      return H5T_NATIVE_INT8;
    case at::kShort:
      return H5T_NATIVE_INT16;
    case at::kInt:
      return H5T_NATIVE_INT32;
    case at::kLong:
      return H5T_NATIVE_INT64;
    case at::kFloat:
      return H5T_NATIVE_FLOAT;
    case at::kDouble:
      return H5T_NATIVE_DOUBLE;
    default:
      throw make_error("save_hdf5", "HDF5 has no type {}. Convert the component with map().",
                       c10::toString(type));
  }
}

// The type of libtorch that holds what the file has.
at::ScalarType torch_type(hid_t type, const std::string& where) {
  const size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) {
    if (bytes == 4) return at::kFloat;
    if (bytes == 8) return at::kDouble;
  } else if (H5Tget_class(type) == H5T_INTEGER) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (bytes == 1) return is_signed ? at::kChar : at::kByte;
    if (bytes == 2 && is_signed) return at::kShort;
    if (bytes == 4 && is_signed) return at::kInt;
    if (bytes == 8 && is_signed) return at::kLong;
  }
  throw make_error("read_hdf5",
                   "{} has a type of {} bytes that tensors do not have. Signed integers, unsigned "
                   "bytes, float and double can be read.",
                   where, bytes);
}

at::Tensor read(hid_t file, const fs::path& path, const std::string& name) {
  const std::string where = fmt::format("'{}' in '{}'", name, path.string());
  const Handle set(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  TP_CHECK(set.is_valid(), "read_hdf5", "there is no data set {}. Check the name.", where);
  const Handle type(H5Dget_type(set), H5Tclose);
  const Handle space(H5Dget_space(set), H5Sclose);
  const int dimensions = H5Sget_simple_extent_ndims(space);
  TP_CHECK(dimensions >= 0 && H5Sget_simple_extent_type(space) != H5S_NULL, "read_hdf5",
           "{} has no values. Check the name.", where);
  std::vector<hsize_t> sizes(dimensions);
  H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
  const at::ScalarType dtype = torch_type(type, where);
  at::Tensor tensor = at::empty(std::vector<int64_t>(sizes.begin(), sizes.end()), dtype);
  const herr_t code =
      H5Dread(set, native_type(dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.data_ptr());
  TP_CHECK(code >= 0, "read_hdf5", "{} cannot be read: the file is damaged. Get it again.", where);
  return tensor;
}

void write(hid_t file, const fs::path& path, const std::string& name, const at::Tensor& tensor) {
  const std::vector<hsize_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  const hid_t type = native_type(tensor.scalar_type());
  const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                     H5Sclose);
  const Handle groups(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(groups, 1);
  const Handle set(H5Dcreate2(file, name.c_str(), type, space, groups, H5P_DEFAULT, H5P_DEFAULT),
                   H5Dclose);
  const bool is_written = set.is_valid() && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                                                     tensor.contiguous().data_ptr()) >= 0;
  TP_CHECK(is_written, "save_hdf5", "'{}' cannot be written to '{}'. Is the disk full?", name,
           path.string());
}

}  // namespace

std::vector<at::Tensor> read_hdf5(const fs::path& path, const std::vector<std::string>& names) {
  silence();
  TP_CHECK(fs::exists(path), "read_hdf5", "there is no '{}'. Check the path.", path.string());
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  TP_CHECK(file.is_valid(), "read_hdf5",
           "'{}' cannot be opened: it is no HDF5 file, or a damaged one. Get it again.",
           path.string());
  std::vector<at::Tensor> tensors;
  for (const std::string& name : names) tensors.push_back(read(file, path, name));
  return tensors;
}

int64_t save_hdf5(DataFlow& flow, const fs::path& path, const std::vector<std::string>& names) {
  silence();
  std::vector<DataPoint> points;
  while (auto point = flow.next()) {
    TP_CHECK(point->size() == names.size(), "save_hdf5",
             "datapoint {} has {}, but is given {}. Pass one for each.", points.size(),
             counted(std::ssize(*point), "component"), counted(std::ssize(names), "name"));
    points.push_back(std::move(*point));
  }
  TP_CHECK(!points.empty(), "save_hdf5", "the flow has no datapoints, so nothing was written.");
  const DataPoint columns = detail::stack(points, std::nullopt);
  fs::path unfinished = path;
  unfinished += ".unfinished";
  try {
    const Handle file(H5Fcreate(unfinished.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                      H5Fclose);
    TP_CHECK(file.is_valid(), "save_hdf5", "'{}' cannot be created. Check the folder.",
             unfinished.string());
    for (size_t i = 0; i < names.size(); ++i) write(file, path, names[i], columns[i]);
    TP_CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0, "save_hdf5", "'{}' cannot be written.",
             path.string());
  } catch (...) {
    fs::remove(unfinished);
    throw;
  }
  fs::rename(unfinished, path);
  return std::ssize(points);
}

}  // namespace tensorpack
