# The Debian package: `cpack --config build/release/CPackConfig.cmake` (make deb). Only what is installed below is in it.
include(GNUInstallDirs)
set(systemd_units lib/systemd/system)
install(TARGETS quire RUNTIME DESTINATION bin)
install(FILES deploy/demo-model/quire-demo.gguf DESTINATION share/quire)
install(FILES deploy/package/quire.yaml DESTINATION /etc/quire)
install(FILES deploy/systemd/quire.service deploy/systemd/quire.socket DESTINATION /${systemd_units})
install(FILES deploy/monitoring/alerts.yml deploy/monitoring/grafana/quire.json deploy/haproxy/haproxy.cfg
  DESTINATION share/doc/quire/examples)
# The documents keep their places, so that links between them hold.
foreach(depth "" */ */*/)
  file(GLOB found RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${depth}*.md)
  list(FILTER found EXCLUDE REGEX "^build")
  foreach(page ${found})
    get_filename_component(folder ${page} DIRECTORY)
    install(FILES ${page} DESTINATION share/doc/quire/${folder})
  endforeach()
endforeach()
install(DIRECTORY deploy/docs/clients deploy/docs/images DESTINATION share/doc/quire/deploy/docs)
install(DIRECTORY deploy/examples DESTINATION share/doc/quire/deploy USE_SOURCE_PERMISSIONS)
install(FILES deploy/helm/quire/values.yaml DESTINATION share/doc/quire/deploy/helm/quire)
install(FILES LICENSE DESTINATION share/doc/quire)
install(FILES config/quire.yaml DESTINATION share/doc/quire RENAME reference.yaml)
install(FILES LICENSE DESTINATION share/doc/quire RENAME copyright)

# Man pages, shell completion and the list of changes, made by the binary that they describe.
set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
add_custom_command(OUTPUT ${pages}/stamp
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/man ${pages}/completion
  COMMAND quire man --all ${pages}/man
  COMMAND quire completion bash > ${pages}/completion/quire
  COMMAND quire completion zsh > ${pages}/completion/_quire
  COMMAND quire completion fish > ${pages}/completion/quire.fish
  COMMAND gzip -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md > ${pages}/changelog.gz
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/stamp
  DEPENDS quire ${PROJECT_SOURCE_DIR}/CHANGELOG.md VERBATIM)
add_custom_target(quire_pages ALL DEPENDS ${pages}/stamp)
install(DIRECTORY ${pages}/man/ DESTINATION share/man/man1)
install(FILES ${pages}/completion/quire DESTINATION share/bash-completion/completions)
install(FILES ${pages}/completion/_quire DESTINATION share/zsh/vendor-completions)
install(FILES ${pages}/completion/quire.fish DESTINATION share/fish/vendor_completions.d)
install(FILES ${pages}/changelog.gz DESTINATION share/doc/quire)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGE_VENDOR "Quire")
set(CPACK_PACKAGE_CONTACT "Quire maintainers <maintainers@quire.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# Permissions of folders as dpkg expects them, independent of the umask.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# A system's package depends on libraries of that system: quire_0.2.0-1~debian12_amd64.deb.
cmake_host_system_information(RESULT system QUERY DISTRIB_INFO)
set(CPACK_DEBIAN_PACKAGE_RELEASE "1~${system_ID}${system_VERSION_ID}")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
if(CMAKE_CROSSCOMPILING)  # dpkg-shlibdeps knows the libraries of this machine only
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/package-depends.cmake CONTENT "execute_process(COMMAND
    ${PROJECT_SOURCE_DIR}/deploy/arm64/debian-depends.sh $<TARGET_FILE:quire> OUTPUT_VARIABLE CPACK_DEBIAN_PACKAGE_DEPENDS
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
")
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/package-depends.cmake)
else()
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "daemon that serves large language models over HTTP
 Quire answers OpenAI's and Anthropic's APIs from GGUF and safetensors models,
 with continuous batching over a paged KV cache. The package has a small demo
 model, a hardened systemd service and its socket.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/package/conffiles
  ${PROJECT_SOURCE_DIR}/deploy/package/postinst ${PROJECT_SOURCE_DIR}/deploy/package/prerm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
