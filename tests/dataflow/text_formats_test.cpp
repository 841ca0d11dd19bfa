// SPDX-License-Identifier: Apache-2.0
// Tables, archives and texts.
#include <cstdlib>
#include <filesystem>

#include "tensorpack/dataflow/format/csv.h"
#include "tensorpack/dataflow/format/tar.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/text.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/dataflow/matchers.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

DataFlowPtr pairs(int64_t count) {
  return numbers(count) | map([](DataPoint p) {
           const auto n = p[0].item<int64_t>();
           return DataPoint{bytes(std::string(300 * n, 'x')), bytes(std::to_string(n))};
         });
}

class TextFormatsTest : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& content, const std::string& name = "file") {
    write_file_atomically(dir_ / name, content);
    return dir_ / name;
  }

  TempDir dir_;
};

TEST_F(TextFormatsTest, TarShardsComeBack) {
  EXPECT_EQ(save_tar(*pairs(5), dir_ / "a.tar", {"img", "cls"}), 5);
  const MakeDataFlow make = [&] {
    return std::make_unique<TarShard>(dir_ / "a.tar", std::vector<std::string>{"img", "cls"});
  };
  EXPECT_TRUE(same(collect(*make()), collect(*pairs(5))));
  expect_passes_repeat(make);
  expect_skips_as_if_read(make);
}

TEST_F(TextFormatsTest, TarReadsWhatTarWrites) {
  std::filesystem::create_directory(dir_ / "d");
  const std::string stem(150, 'n');
  file("image", "d/" + stem + ".jpg");
  file("7", "d/" + stem + ".cls");
  file("{}", "d/" + stem + ".json");
  const std::string command = "cd '" + dir_.path().string() + "' && tar czf a.tar.gz d/*";
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "there is no tar";
  TarShard shard(dir_ / "a.tar.gz", {"cls", "jpg"});
  const auto point = shard.next();
  EXPECT_EQ(bytes_view(point->at(0)), "7");
  EXPECT_EQ(bytes_view(point->at(1)), "image");
  EXPECT_EQ(shard.key(), "d/" + stem);
  EXPECT_FALSE(shard.next());
}

TEST_F(TextFormatsTest, DamagedTarNamesFileAndOffset) {
  save_tar(*pairs(3), dir_ / "a.tar", {"img", "cls"});
  const std::string whole = read_file(dir_ / "a.tar");
  const auto read_all = [&](const std::filesystem::path& path) {
    TarShard shard(path, {"img", "cls"});
    collect(shard);
  };
  EXPECT_THAT([&] { read_all(file(whole.substr(0, 1700))); },
              ThrowsMessage<Error>(AllOf(HasSubstr("is cut off"), HasSubstr("at offset 1536"))));
  std::string damaged = whole;
  damaged[512] = 'Z';
  EXPECT_ERROR(read_all(file(damaged)), "wrong checksum at offset 512");
  EXPECT_ERROR(TarShard(dir_ / "a.tar", {"png"}).next(), "there is no '00000000.png'");
  EXPECT_ERROR(read_all(file(whole + whole)), "goes on after the empty block that ends an archive");
}

TEST_F(TextFormatsTest, CsvHasNumbersTextsAndQuotes) {
  const auto path =
      file("x,\"the name\",kind,y\n1.5,\"a \"\"b\"\",\n\nc\",3,2e1\r\n\n-2,plain,4,0\n");
  CsvData flow(path, {{.columns = {"x", "y"}},
                      {.columns = {"kind"}, .dtype = torch::kLong},
                      {.columns = {"the name"}, .dtype = torch::kByte}});
  EXPECT_TRUE(
      same(collect(flow), {{torch::tensor({1.5F, 20.0F}), torch::tensor(3), bytes("a \"b\",\n\nc")},
                           {torch::tensor({-2.0F, 0.0F}), torch::tensor(4), bytes("plain")}}));
  flow.start(1);
  EXPECT_THAT(collect(flow), SizeIs(2));
}

TEST_F(TextFormatsTest, CsvErrorsNameFileLineAndColumn) {
  const auto path = file("x,label\n1,2\n3,nan\n5,6\n");
  const std::vector<CsvComponent> components{{.columns = {"label"}}};
  CsvData flow(path, components);
  flow.next();
  EXPECT_THAT([&] { flow.next(); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr(path.string()), HasSubstr("'nan' in line 3, column 1"))));
  EXPECT_EQ(flow.next()->at(0).item<float>(), 6);
  CsvData tolerant(path, components, {.on_error = OnError::kSkip});
  const std::string log = stdout_of([&] { EXPECT_THAT(values(tolerant), ElementsAre(2, 6)); });
  EXPECT_THAT(log, HasSubstr("a line was left out, 1 so far"));
  EXPECT_ERROR(CsvData(path, {{.columns = {"y"}}}), "has no column 'y'. Known: x, label.");
  EXPECT_ERROR(CsvData(file("a\n\"open"), {{.columns = {"a"}}}).next(),
               "quoted field that began in line 2");
  EXPECT_ERROR(CsvData(file(""), {{.columns = {"a"}}}), "is empty");
}

TEST_F(TextFormatsTest, CsvWithoutHeaderCountsColumns) {
  CsvData flow(file("1;2\n3;4"), {{.columns = {"1"}}}, {.separator = ';', .header = false});
  EXPECT_THAT(values(flow), ElementsAre(2, 4));
}

TEST_F(TextFormatsTest, CsvComesBack) {
  auto flow =
      FromList({{torch::tensor({0.1, -3e-7}, torch::kDouble), torch::tensor(5), bytes("a,\"b\"")}});
  EXPECT_EQ(save_csv(flow, dir_ / "a", {"x", "y", "n", "t"}), 1);
  CsvData back(dir_ / "a", {{.columns = {"x", "y"}, .dtype = torch::kDouble},
                            {.columns = {"n"}, .dtype = torch::kLong},
                            {.columns = {"t"}, .dtype = torch::kByte}});
  flow.start(0);
  EXPECT_TRUE(same(collect(back), collect(flow)));
}

TEST(CharTokenizerTest, TextComesBack) {
  const std::string text = "häßlich\n ab";
  const CharTokenizer tokenizer(text);
  EXPECT_EQ(tokenizer.size(), 10);
  EXPECT_EQ(tokenizer.encode(text).size(0), 11);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_ERROR(tokenizer.encode("abz"), "the character 'z' at offset 2");
}

TEST(BytePairTokenizerTest, MergesTheMostFrequentPairsFirst) {
  const auto tokenizer = BytePairTokenizer::train("low low low lower newest newest", 260);
  EXPECT_EQ(tokenizer.size(), 260);
  // "lo" and then "low" come oftenest; the blank belongs to the word after it.
  EXPECT_EQ(tokenizer.decode(torch::tensor({256})), "lo");
  EXPECT_EQ(tokenizer.decode(torch::tensor({257})), "low");
  EXPECT_EQ(tokenizer.decode(torch::tensor({258})), " low");
  EXPECT_TRUE(torch::equal(tokenizer.encode("low low"), torch::tensor({257, 258})));
}

TEST(BytePairTokenizerTest, AnyTextComesBackAlsoFromAFile) {
  const TempDir dir;
  const auto tokenizer = BytePairTokenizer::train("the cat sat on the mat, the end.", 300);
  EXPECT_LT(tokenizer.size(), 300) << "no pair comes twice any more";
  tokenizer.save(dir / "pairs");
  const auto loaded = BytePairTokenizer::load(dir / "pairs");
  for (const std::string text : {"the cat", "", "ünknown \xff\n  words", "a"}) {
    EXPECT_EQ(loaded.decode(loaded.encode(text)), text);
    EXPECT_TRUE(torch::equal(loaded.encode(text), tokenizer.encode(text)));
  }
  write_file_atomically(dir / "pairs", "byte-pairs 1\n1 2\n300 1\n");
  EXPECT_ERROR(BytePairTokenizer::load(dir / "pairs"), "line 3: the pair 300 1");
}

TEST(TokenWindowsTest, TargetsAreTheNextTokens) {
  const MakeDataFlow make = [] {
    return std::make_unique<TokenWindows>(torch::arange(10), TokenWindowsOptions{.length = 3});
  };
  EXPECT_EQ(make()->size(), 3);
  const auto points = collect(*make());
  EXPECT_TRUE(same(points[2], {torch::tensor({6, 7, 8}), torch::tensor({7, 8, 9})}));
  expect_true_size(make);
  expect_skips_as_if_read(make);
  EXPECT_EQ(TokenWindows(torch::arange(10), {.length = 3, .stride = 1}).size(), 7);
  EXPECT_ERROR(TokenWindows(torch::arange(3), {.length = 3}),
               "do not fit into 3 tokens in 1 dimension");
}

}  // namespace
}  // namespace tensorpack::test
