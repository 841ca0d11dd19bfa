# Makes a source file of the page: cmake -DDIR=<folder of page.html> -DOUT=<file> -P embed.cmake
file(READ "${DIR}/page.html" page)
file(READ "${DIR}/style.css" style)
string(REPLACE "<link rel=\"stylesheet\" href=\"style.css\">" "<style>\n${style}</style>" page "${page}")
string(REGEX MATCHALL "<script src=[^>]*></script>" tags "${page}")
foreach(tag IN LISTS tags)
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" script "${tag}")
  file(READ "${DIR}/${script}" text)
  string(REPLACE "${tag}" "<script>\n${text}</script>" page "${page}")
endforeach()
file(WRITE "${OUT}" "#include \"tensorpack/monitors/report/page.h\"

std::string_view tensorpack::report::page() { return R\"PAGE(${page})PAGE\"; }
")
