// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/npz.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include <random>

#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/utils/fs.h"
#include "tests/checkpoint/same.h"
#include "tests/support/child_process.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;

// Tensors of every type that NumPy has, too, and of shapes that are easily got wrong.
NamedTensors all_kinds() {
  NamedTensors tensors = {{"scalar", torch::tensor(3.5)},
                          {"empty", torch::empty({0, 4})},
                          {"sliced", torch::arange(12).reshape({3, 4}).t().slice(0, 1, 3)},
                          {"conv0/W", torch::arange(24.0).reshape({2, 3, 4})}};
  for (const auto type : {torch::kDouble, torch::kFloat, torch::kHalf, torch::kLong, torch::kInt,
                          torch::kShort, torch::kChar, torch::kByte, torch::kBool}) {
    tensors[c10::toString(type)] = torch::arange(7).remainder(2).to(type);
  }
  return tensors;
}

class NpzTest : public testing::Test {
 protected:
  NpzTest() {
#ifndef TENSORPACK_HAS_ZLIB
    skip_ = "built without zlib";
#endif
  }
  void SetUp() override {
    if (!skip_.empty()) GTEST_SKIP() << skip_;
  }
  std::filesystem::path path() const { return dir_ / "x.npz"; }

  void expect_equal(const NamedTensors& read, const NamedTensors& written) {
    ASSERT_EQ(read.size(), written.size());
    for (const auto& [name, tensor] : written) EXPECT_TRUE(same(read.at(name), tensor)) << name;
  }

  TempDir dir_;
  std::string skip_;
};

TEST_F(NpzTest, WhatWasWrittenIsReadBack) {
  write_npz(path(), all_kinds());
  expect_equal(read_npz(path()), all_kinds());
  write_npz(path(), {});
  EXPECT_TRUE(read_npz(path()).empty());
}

TEST_F(NpzTest, TheSameTensorsGiveTheSameBytes) {
  write_npz(path(), all_kinds());
  const std::string first = read_file(path());
  write_npz(path(), all_kinds());
  EXPECT_EQ(read_file(path()), first);
}

TEST_F(NpzTest, SparseTensorsAreNamed) {
  EXPECT_ERROR(write_npz(path(), {{"w", torch::eye(2).to_sparse()}}),
               "'w' is a sparse tensor, which NumPy does not have. Write its to_dense().");
}

TEST_F(NpzTest, TypesThatNumPyDoesNotHaveAreNamed) {
  EXPECT_ERROR(write_npz(path(), {{"w", torch::ones({2}, torch::kBFloat16)}}),
               "'w' is of type BFloat16, which NumPy does not have. Cast it to float32");
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(NpzTest, AFileOfAnotherKindIsRefused) {
  EXPECT_ERROR(read_npz(path()), "cannot open");
  write_file_atomically(path(), "");
  EXPECT_ERROR(read_npz(path()), "it has only 0 bytes");
  write_file_atomically(path(), std::string(1000, 'x'));
  EXPECT_ERROR(read_npz(path()), "it has no end of a zip file");
}

TEST_F(NpzTest, NoDamageIsLoaded) {
  const NamedTensors tensors = {{"a", torch::arange(50.0)}, {"b", torch::ones({2, 3})}};
  write_npz(path(), tensors);
  const std::string whole = read_file(path());
  const auto loads_wrong = [&](const std::string& bytes) {
    write_file_atomically(path(), bytes);
    try {
      const NamedTensors read = read_npz(path());
      for (const auto& [name, tensor] : tensors) {
        if (!read.contains(name) || !same(read.at(name), tensor)) return true;
      }
    } catch (const Error&) {
    }
    return false;
  };
  for (size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_FALSE(loads_wrong(whole.substr(0, size))) << "cut off at " << size;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    const size_t bit = random() % (8 * bytes.size());
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const bool in_a_name = loads_wrong(bytes) && [&] {
      const NamedTensors read = read_npz(path());  // a name of the directory has no checksum
      return !read.contains("a") || !read.contains("b");
    }();
    EXPECT_TRUE(in_a_name || !loads_wrong(bytes)) << "bit " << bit;
  }
}

/// With a Python that knows NumPy and nothing of this library.
class NumPyTest : public NpzTest {
 protected:
  NumPyTest() {
    if (skip_.empty() && run("import numpy") != 0) skip_ = "/usr/bin/python3 has no NumPy";
  }
  int run(const std::string& program) {
    ChildProcess python({"/usr/bin/python3", "-c", program, dir_.path().string()});
    const int status = python.wait();
    output_ = python.output();
    return status;
  }

  std::string output_;
};

constexpr const char* kMake = R"(
import sys, os, json, struct, numpy as np
os.chdir(sys.argv[1])
arrays = {'scalar': np.array(3.5, np.float32), 'empty': np.empty((0, 4), np.float32),
          'sliced': np.arange(12).reshape(3, 4).T[1:3],
          'conv0/W': np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
for name, kind in [('Double', 'f8'), ('Float', 'f4'), ('Half', 'f2'), ('Long', 'i8'),
                   ('Int', 'i4'), ('Short', 'i2'), ('Char', 'i1'), ('Byte', 'u1'), ('Bool', '?')]:
    arrays[name] = (np.arange(7) % 2).astype(kind)
def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
KINDS = {'f8': 'F64', 'f4': 'F32', 'f2': 'F16', 'i8': 'I64', 'i4': 'I32', 'i2': 'I16',
         'i1': 'I8', 'u1': 'U8', 'b1': 'BOOL'}
)";

TEST_F(NumPyTest, ReadsWhatWeWrite) {
  write_npz(path(), all_kinds());
  EXPECT_EQ(run(std::string(kMake) + R"(
ours = np.load('x.npz')
assert sorted(ours.files) == sorted(arrays), ours.files
for name, array in arrays.items(): assert same(ours[name], array), name
import zipfile
assert zipfile.ZipFile('x.npz').testzip() is None
)"),
            0)
      << output_;
}

TEST_F(NumPyTest, IsReadInAllItsForms) {
  ASSERT_EQ(run(std::string(kMake) + R"(
np.savez('x.npz', **arrays)
np.savez_compressed('packed.npz', **arrays, much=np.zeros(100000))
np.savez('other.npz', fortran=np.asfortranarray(np.arange(6.0).reshape(2, 3)),
         big=np.arange(5).astype('>i4'))
np.savez('objects.npz', o=np.array([{}], dtype=object))
)"),
            0)
      << output_;
  expect_equal(read_npz(path()), all_kinds());
  NamedTensors packed = read_npz(dir_ / "packed.npz");
  EXPECT_TRUE(same(packed.at("much"), torch::zeros({100000}, torch::kDouble)));
  packed.erase("much");
  expect_equal(packed, all_kinds());
  const NamedTensors other = read_npz(dir_ / "other.npz");
  EXPECT_TRUE(same(other.at("fortran"), torch::arange(6, torch::kDouble).reshape({2, 3})));
  EXPECT_TRUE(same(other.at("big"), torch::arange(5, torch::kInt)));
  EXPECT_ERROR(read_npz(dir_ / "objects.npz"), "its type '|O' is not supported");
}

// The format is a length, JSON and bytes: nothing else is needed to read or write it.
TEST_F(NumPyTest, ReadsAndWritesSafetensorsWithoutALibrary) {
  write_safetensors(dir_ / "ours.safetensors", all_kinds(), {{"who", "we"}});
  ASSERT_EQ(run(std::string(kMake) + R"(
data = open('ours.safetensors', 'rb').read()
size = struct.unpack('<Q', data[:8])[0]
header = json.loads(data[8:8 + size])
assert header.pop('__metadata__') == {'who': 'we'}
assert sorted(header) == sorted(arrays)
for name, entry in header.items():
    kind = next(k for k, v in KINDS.items() if v == entry['dtype'])
    a, b = entry['data_offsets']
    array = np.frombuffer(data[8 + size + a:8 + size + b], kind).reshape(entry['shape'])
    assert same(array, arrays[name]), name
header, body = {'__metadata__': {'format': 'np'}}, b''
for name, array in arrays.items():
    raw = np.ascontiguousarray(array).tobytes()
    header[name] = {'dtype': KINDS[array.dtype.str[1:]], 'shape': list(array.shape),
                    'data_offsets': [len(body), len(body) + len(raw)]}
    body += raw
text = json.dumps(header).encode()
open('theirs.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + body)
)"),
            0)
      << output_;
  const SafetensorsFile theirs = read_safetensors(dir_ / "theirs.safetensors");
  EXPECT_EQ(theirs.metadata, (Metadata{{"format", "np"}}));
  expect_equal(theirs.tensors, all_kinds());
}

}  // namespace
}  // namespace tensorpack::test
