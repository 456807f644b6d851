# The web page: its own files (server/web) and Debian's JavaScript libraries, as bytes in the binary.
file(GLOB web_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/server/web/*.html ${PROJECT_SOURCE_DIR}/server/web/*.css
  ${PROJECT_SOURCE_DIR}/server/web/*.js ${PROJECT_SOURCE_DIR}/server/web/*.svg)
set(web_entries "")
foreach(file ${web_files})
  get_filename_component(name ${file} NAME)
  list(APPEND web_entries ${name}=${file})
endforeach()

# Embeds the library's file `path` of a Debian package under lib/<name>.
function(web_library package name path)
  foreach(root /usr/share/javascript /usr/share/nodejs)
    if(EXISTS ${root}/${path})
      get_filename_component(file ${root}/${path} REALPATH)
      list(APPEND web_files ${file})
      list(APPEND web_entries lib/${name}=${file})
      set(web_files ${web_files} PARENT_SCOPE)
      set(web_entries ${web_entries} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${path} is missing: install the package ${package} (make packages installs all that the build needs)")
endfunction()

web_library(libjs-marked marked.js marked/marked.min.js)
web_library(node-dompurify purify.js dompurify/dist/purify.min.js)
web_library(libjs-highlight.js highlight.js highlight.js/highlight.min.js)
web_library(libjs-chart.js chart.js chart.js/chart.min.js)
web_library(libjs-katex katex.js katex/katex.min.js)
web_library(libjs-katex katex.css katex/katex.min.css)
file(GLOB katex_fonts /usr/share/fonts/truetype/katex/*.woff2)
if(NOT katex_fonts)
  message(FATAL_ERROR "KaTeX's fonts are missing: install the package fonts-katex")
endif()
foreach(file ${katex_fonts})
  get_filename_component(name ${file} NAME)
  list(APPEND web_files ${file})
  list(APPEND web_entries lib/fonts/${name}=${file})
endforeach()

set(web_assets ${PROJECT_BINARY_DIR}/generated/web_assets.cpp)
add_custom_command(OUTPUT ${web_assets} VERBATIM
  DEPENDS ${web_files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${web_assets} -DFOLDER=${PROJECT_BINARY_DIR}/generated/web "-DFILES=${web_entries}"
    -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
target_sources(quire_server PRIVATE ${web_assets})
