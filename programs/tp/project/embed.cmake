# Makes a source file of the files of a new project: cmake -DDIR=<this folder> -DOUT=<file> -P embed.cmake
file(GLOB files RELATIVE "${DIR}" "${DIR}/*.in")
list(SORT files)
set(entries "")
foreach(file IN LISTS files)
  file(READ "${DIR}/${file}" text)
  string(REGEX REPLACE "\\.in$" "" name "${file}")
  string(REPLACE "gitignore" ".gitignore" name "${name}")
  string(APPEND entries "    {\"${name}\", R\"FILE(${text})FILE\"},\n")
endforeach()
file(WRITE "${OUT}" "#include \"programs/tp/project_files.h\"

namespace tensorpack {

std::span<const ProjectFile> project_files() {
  static constexpr ProjectFile files[] = {
${entries}  };
  return files;
}

}  // namespace tensorpack
")
