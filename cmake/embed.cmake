# Makes a C++ source that holds files as bytes, each with its type, its content's hash and, where that is smaller, compressed:
#   cmake -DOUTPUT=web_assets.cpp -DFOLDER=scratch "-DFILES=name=path;..." -P embed.cmake
file(MAKE_DIRECTORY ${FOLDER})
set(blobs "")
set(rows "")
set(index 0)
foreach(entry ${FILES})
  string(REGEX MATCH "^([^=]+)=(.*)$" matched ${entry})
  set(name ${CMAKE_MATCH_1})
  set(path ${CMAKE_MATCH_2})
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  set(compressed true)
  if(path MATCHES "\\.woff2$")  # compressed by its format
    set(compressed false)
  else()
    execute_process(COMMAND gzip -9nc ${path} OUTPUT_FILE ${FOLDER}/${index}.gz COMMAND_ERROR_IS_FATAL ANY)
    set(path ${FOLDER}/${index}.gz)
  endif()
  # Global names: of local ones the assembler for arm64 keeps the section alone where code takes their addresses from a table.
  file(SIZE ${path} size)
  string(APPEND blobs "__asm__(\".section .rodata\\n.globl quire_web_${index}\\n.hidden quire_web_${index}\\nquire_web_${index}:\\n.incbin \\\"${path}\\\"\\n.previous\\n\");\n"
    "extern \"C\" const char quire_web_${index}[];\n")
  string(APPEND rows "      {\"${name}\", \"\\\"${hash}\\\"\", {quire_web_${index}, ${size}}, ${compressed}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"server/web/assets.h\"\n\n${blobs}
namespace quire::web {

std::span<const Asset> all_assets() {
  static const Asset kAssets[] = {\n${rows}  };
  return kAssets;
}

std::optional<Asset> find_asset(std::string_view name) {
  for (const Asset& asset : all_assets()) {
    if (asset.name == name) return asset;
  }
  return std::nullopt;
}\n
}  // namespace quire::web\n")
