// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/user_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>

#include "programs/tp/directory_lock.h"
#include "programs/tp/file_record.h"
#include "programs/tp/shell.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

// Neither a program nor a header that was used within this time is removed.
constexpr std::chrono::hours kUnused{24 * 30};

constexpr const char* kHeaderText = "#include <tensorpack/tensorpack.h>";

enum class Output { kInherited, kSilent };

/// Runs a command, and waits for it. Its status, 128 + a signal's number.
int run_compiler(const Words& words, Output output = Output::kInherited) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  TP_CHECK(pid >= 0, kTpRun, "no process could be made: {}.", std::strerror(errno));
  if (pid == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);  // --watch has signals wait
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    if (output == Output::kSilent) {
      const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string hash_text(const std::string& text) { return fmt::format("{:016x}", xxh64(text)); }

void check_source(const fs::path& source) {
  constexpr std::array<std::string_view, 5> kEndings = {".cpp", ".cc", ".cxx", ".C", ".c++"};
  TP_CHECK(fs::exists(source), kTpRun, "'{}' is not there.", source.string());
  TP_CHECK(fs::is_regular_file(source), kTpRun, "'{}' is not a file.", source.string());
  const std::string ending = source.extension().string();
  TP_CHECK(std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end(), kTpRun,
           "'{}' is not C++: it does not end in .cpp, .cc or .cxx. Arguments of the program stand "
           "behind --.",
           source.string());
}

fs::path make_directory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  TP_CHECK(!error && access(directory.c_str(), W_OK) == 0, kTpRun,
           "compiled files cannot be kept in '{}': {}. XDG_CACHE_HOME names another directory.",
           directory.string(), error ? error.message() : std::strerror(EACCES));
  return directory;
}

fs::path cache_directory() {
  const fs::path cache = cache_path("run");
  TP_CHECK(!cache.empty(), kTpRun,
           "there is no home directory to keep compiled files in. Set HOME or XDG_CACHE_HOME.");
  return make_directory(cache);
}

/// Compilers and linkers say little, or crash, where they cannot write.
void check_space(const fs::path& directory) {
  constexpr uintmax_t kLeast = uintmax_t{8} << 20;
  std::error_code unknown;
  const auto space = fs::space(directory, unknown);
  TP_CHECK(unknown || space.available >= kLeast, kTpRun,
           "the disk of '{}' is full: {} are left. Free some, or name another directory by "
           "XDG_CACHE_HOME.",
           directory.string(), humanize_bytes(static_cast<double>(space.available)));
}

/// Removes what was not used for a while. What is used now was noted so before this.
void remove_unused(const fs::path& cache) {
  const auto oldest = std::chrono::file_clock::now() - kUnused;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cache, ignored)) {
    if (entry.last_write_time(ignored) < oldest) fs::remove_all(entry.path(), ignored);
  }
}

void note_use(const fs::path& directory) {
  std::error_code ignored;
  fs::last_write_time(directory, std::chrono::file_clock::now(), ignored);
}

/// The option in a word that names a directory of headers, in the same word or in the next; empty
/// in other words.
std::string_view header_option(const std::string& word) {
  constexpr std::array<std::string_view, 3> kOptions = {"-I", "-isystem", "-iquote"};
  const auto found = std::find_if(kOptions.begin(), kOptions.end(), [&](std::string_view option) {
    return word.starts_with(option);
  });
  return found == kOptions.end() ? std::string_view() : *found;
}

/// Without directories of headers and warnings, which no precompiled header depends on.
Words without_paths(const Words& options) {
  Words rest;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string_view header = header_option(options[i]);
    if (header.empty()) {
      if (!options[i].starts_with("-W")) rest.push_back(options[i]);
    } else if (options[i] == header) {
      ++i;
    }
  }
  return rest;
}

std::vector<fs::path> header_directories(const Words& options) {
  std::vector<fs::path> directories;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string_view header = header_option(options[i]);
    if (header.empty()) continue;
    const bool is_next = options[i] == header && i + 1 < options.size();
    directories.emplace_back(is_next ? options[++i] : options[i].substr(header.size()));
  }
  return directories;
}

/// Whether a word is a file to link: part.o, libfoo.a, libfoo.so, libfoo.so.1.
bool is_linked_file(const std::string& word) {
  const std::string name = fs::path(word).filename().string();
  return !word.starts_with('-') && (name.ends_with(".o") || name.ends_with(".a") ||
                                    name.ends_with(".so") || name.find(".so.") != name.npos);
}

/// A compiler that does not link would warn of what is for the linker, or refuse it.
Words without_linker_options(const Words& options) {
  Words rest;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string& option = options[i];
    if (option == "-l" || option == "-L" || option == "-Xlinker") {
      ++i;
    } else if (!option.starts_with("-l") && !option.starts_with("-L") &&
               !option.starts_with("-Wl,") && !is_linked_file(option)) {
      rest.push_back(option);
    }
  }
  return rest;
}

Words concat(std::initializer_list<Words> parts) {
  Words words;
  for (const Words& part : parts) words.insert(words.end(), part.begin(), part.end());
  return words;
}

}  // namespace

UserProgram::UserProgram(const BuildOptions& options) {
  for (const fs::path& source : options.sources) check_source(source);
  tools_ = find_toolchain();
  // A header that clang has precompiled serves every level of optimization but none at all.
  const std::string level = options.debug ? "-O0" : options.release ? "-O3" : "-O1";
  const std::string header_level = tools_.is_clang && !options.debug ? "-O1" : level;
  Words rest = tools_.compile_options;
  if (tools_.is_clang) rest.insert(rest.end(), {"-Xclang", "-fno-pch-timestamp"});
  if (options.debug) rest.emplace_back("-g");
  const Words of_user = without_linker_options(options.cxx_options);
  options_ = concat({{level}, rest, of_user});
  header_options_ = concat({{header_level}, rest, without_paths(of_user)});
  link_options_ = concat({options.cxx_options, tools_.link_options});  // sanitizers need both
  has_own_libraries_ = of_user.size() < options.cxx_options.size();
  if (tools_.is_clang) header_options_.emplace_back("-fpch-instantiate-templates");

  const fs::path cache = cache_directory();
  const std::string compiler = tools_.compiler + "\n" + tools_.version;
  header_directory_ =
      make_directory(cache / ("header-" + hash_text(compiler + shell_text(header_options_))));
  std::string key = compiler + shell_text(concat({options_, link_options_}));
  for (const fs::path& source : options.sources) key += "\n" + fs::canonical(source).string();
  // Options may name directories below this one.
  if (!options.cxx_options.empty()) key += "\n" + fs::current_path().string();
  directory_ = make_directory(cache / ("program-" + hash_text(key)));
  for (size_t i = 0; i < options.sources.size(); ++i) {
    units_.push_back({.source = fs::canonical(options.sources[i]),
                      .object = directory_ / fmt::format("{}.o", i)});
  }
  program_ = directory_ / units_.front().source.stem();
  note_use(header_directory_);
  note_use(directory_);
  remove_unused(cache);
}

fs::path UserProgram::header_file() const { return header_directory_ / "precompiled.h"; }

fs::path UserProgram::precompiled_header() const {
  return header_file().string() + (tools_.is_clang ? ".pch" : ".gch");
}

fs::path UserProgram::header_record() const { return header_directory_ / "record.json"; }

Words UserProgram::precompile_command(const fs::path& to) const {
  return concat({{tools_.compiler},
                 header_options_,
                 {"-MD", "-MF", (header_directory_ / "precompiled.d").string(), "-x", "c++-header",
                  header_file().string(), "-o", to.string()}});
}

Words UserProgram::compile_command(const Unit& unit) const {
  const Words header = tools_.is_clang ? Words{"-include-pch", precompiled_header().string()}
                                       : Words{"-include", header_file().string()};
  return concat({{tools_.compiler},
                 options_,
                 header,
                 {"-MD", "-MF", unit.dependencies().string(), "-c", unit.source.string(), "-o",
                  unit.object.string()}});
}

Words UserProgram::link_command(const fs::path& to) const {
  Words objects;
  for (const Unit& unit : units_) objects.push_back(unit.object.string());
  return concat({{tools_.compiler}, objects, {"-o", to.string()}, link_options_});
}

std::vector<std::string> UserProgram::commands(const Words& program_words) const {
  std::vector<std::string> texts = {
      fmt::format("echo {} > {}", shell_word(kHeaderText), shell_text({header_file().string()})),
      shell_text(precompile_command(precompiled_header()))};
  for (const Unit& unit : units_) texts.push_back(shell_text(compile_command(unit)));
  texts.push_back(shell_text(link_command(program_)));
  texts.push_back(shell_text(concat({{program_.string()}, program_words})));
  return texts;
}

bool UserProgram::build() const {
  precompile();
  // While --watch waited, another `tp run` or the user may have removed the directories.
  const DirectoryLock lock(make_directory(directory_));
  note_use(directory_);
  return compile_changed() && link();
}

void UserProgram::precompile() const {
  const DirectoryLock lock(make_directory(header_directory_));
  note_use(header_directory_);
  const fs::path to = precompiled_header();
  const std::string command = shell_text(precompile_command(to));
  if (fs::exists(to) && FileRecord::read(header_record()).is_current(command)) return;

  fmt::print(stderr, "tp run: precompiling tensorpack/tensorpack.h with {}, once ... ",
             fs::path(tools_.compiler).filename().string());
  const auto started = std::chrono::file_clock::now();
  write_file_atomically(header_file(), std::string(kHeaderText) + "\n");
  const fs::path unfinished = to.string() + ".tmp";
  const int status = run_compiler(precompile_command(unfinished));
  if (status != 0) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    check_space(header_directory_);
    throw make_error(kTpRun,
                     "the library's headers could not be precompiled in '{}': {} ended with status "
                     "{}. Look at the options: tp run --flags.",
                     header_directory_.string(), tools_.compiler, status);
  }
  std::vector<fs::path> headers = read_dependencies(header_directory_ / "precompiled.d");
  std::erase(headers, header_file());
  fs::rename(unfinished, to);
  FileRecord(command, headers, started).write(header_record());
  const std::chrono::duration<double> taken = std::chrono::file_clock::now() - started;
  fmt::print(stderr, "{:.1f} s\n", taken.count());
}

std::string UserProgram::object_key(const Unit& unit) const {
  const auto time = fs::last_write_time(precompiled_header()).time_since_epoch().count();
  return fmt::format("{} {}", shell_text(compile_command(unit)), time);
}

bool UserProgram::compile_changed() const {
  std::vector<const Unit*> changed;
  for (const Unit& unit : units_) {
    const bool is_current = FileRecord::read(unit.record()).is_current(object_key(unit));
    if (!is_current || !fs::exists(unit.object)) changed.push_back(&unit);
  }
  std::vector<char> succeeded(changed.size(), 0);
  std::vector<std::exception_ptr> failures(changed.size());
  const size_t workers = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
  for (size_t begin = 0; begin < changed.size(); begin += workers) {
    std::vector<std::jthread> threads;
    for (size_t i = begin; i < std::min(begin + workers, changed.size()); ++i) {
      threads.emplace_back([&, i] {
        try {
          succeeded[i] = compile(*changed[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return std::all_of(succeeded.begin(), succeeded.end(), [](char ok) { return ok != 0; });
}

bool UserProgram::compile(const Unit& unit) const {
  // The object may be left half written, and the record tells --watch what to look at.
  const std::vector<fs::path> before = FileRecord::read(unit.record()).files();
  FileRecord::outdated(before).write(unit.record());
  std::error_code ignored;
  fs::remove(unit.dependencies(), ignored);
  // Another `tp run` may replace the precompiled header while the compiler reads this one.
  const std::string key = object_key(unit);
  const auto started = std::chrono::file_clock::now();
  if (run_compiler(compile_command(unit)) != 0) {
    check_space(directory_);
    FileRecord::outdated(dependencies_of_failure(unit)).write(unit.record());
    return false;
  }
  FileRecord(key, dependencies(unit), started).write(unit.record());
  return true;
}

/// Without the precompiled header, which object_key() stands for, and the thousands of files in it.
std::vector<fs::path> UserProgram::dependencies(const Unit& unit) const {
  std::unordered_set<std::string> covered = {precompiled_header(), header_file()};
  for (const fs::path& file : FileRecord::read(header_record()).files()) covered.insert(file);
  std::vector<fs::path> files = read_dependencies(unit.dependencies());
  std::erase_if(files, [&](const fs::path& file) { return covered.contains(file); });
  return files;
}

/// clang writes them in spite of errors, unless a header is missing, and g++ does not. Both name a
/// missing one as the #include does: it may appear beside a file that is read, or in a directory of
/// headers.
std::vector<fs::path> UserProgram::dependencies_of_failure(const Unit& unit) const {
  if (!fs::exists(unit.dependencies())) {
    // By -MM, g++ leaves out a missing <header>.
    const Words list = {"-M", "-MG", "-MF", unit.dependencies().string(), unit.source.string()};
    run_compiler(concat({{tools_.compiler}, options_, list}), Output::kSilent);
  }
  if (!fs::exists(unit.dependencies())) return FileRecord::read(unit.record()).files();
  const std::vector<fs::path> named = dependencies(unit);
  std::set<fs::path> directories;
  for (const fs::path& directory : header_directories(options_)) directories.insert(directory);
  for (const fs::path& file : named) directories.insert(file.parent_path());
  std::vector<fs::path> places;
  for (const fs::path& file : named) {
    places.push_back(file);
    if (file.is_absolute()) continue;
    for (const fs::path& directory : directories) places.push_back(directory / file);
  }
  return places;
}

bool UserProgram::link() const {
  std::vector<fs::path> inputs;
  for (const Unit& unit : units_) inputs.push_back(unit.object);
  for (const std::string& word : tools_.link_options) {
    if (word.ends_with("libtensorpack.a")) inputs.emplace_back(word);
  }
  const fs::path record_file = directory_ / "program.json";
  const std::string command = shell_text(link_command(program_));
  // Which files -l and -Wl stand for is the linker's to find; it takes 0.3 s.
  const bool is_current = !has_own_libraries_ && FileRecord::read(record_file).is_current(command);
  if (is_current && fs::exists(program_)) return true;

  const fs::path unfinished = program_.string() + ".tmp";  // the one before may be running
  if (run_compiler(link_command(unfinished)) != 0) {
    check_space(directory_);
    return false;
  }
  fs::rename(unfinished, program_);
  // Objects change under the lock alone, so none was read half written.
  FileRecord(command, inputs, std::chrono::file_clock::time_point::max()).write(record_file);
  return true;
}

std::vector<fs::path> UserProgram::files() const {
  std::vector<fs::path> files;
  for (const Unit& unit : units_) {
    files.push_back(unit.source);
    for (const fs::path& file : FileRecord::read(unit.record()).files()) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace tensorpack
