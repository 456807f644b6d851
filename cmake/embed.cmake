# Makes a C++ source that holds files as bytes: cmake -DOUTPUT=... -DFOLDER=... -P embed.cmake
file(GLOB files ${FOLDER}/*.html ${FOLDER}/*.css ${FOLDER}/*.js)
list(SORT files)
set(arrays "")
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} symbol)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char k_${symbol}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(k_${symbol}), sizeof k_${symbol}}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"server/web/assets.h\"\n\nnamespace quire::web {\nnamespace {\n${arrays}}  // namespace\n
std::optional<std::string_view> find_asset(std::string_view name) {
  static const std::pair<std::string_view, std::string_view> kAssets[] = {\n${rows}  };
  for (const auto& [asset, bytes] : kAssets) {
    if (asset == name) return bytes;
  }
  return std::nullopt;
}\n}  // namespace quire::web\n")
