# The Debian package: `cpack --config build/release/CPackConfig.cmake` (make deb). Only what is installed below is in it.
include(GNUInstallDirs)
set(systemd_units lib/systemd/system)
install(TARGETS quire RUNTIME DESTINATION bin)
install(FILES deploy/demo-model/quire-demo.gguf DESTINATION share/quire)
install(FILES deploy/package/quire.yaml DESTINATION /etc/quire)
install(FILES deploy/systemd/quire.service deploy/systemd/quire.socket DESTINATION /${systemd_units})
install(FILES deploy/monitoring/alerts.yml deploy/monitoring/grafana/quire.json deploy/haproxy/haproxy.cfg
  DESTINATION share/doc/quire/examples)
install(FILES deploy/operations.md server/API.md README.md DESTINATION share/doc/quire OPTIONAL)
install(FILES config/quire.yaml DESTINATION share/doc/quire RENAME reference.yaml)
install(FILES LICENSE DESTINATION share/doc/quire RENAME copyright)
install(FILES deploy/package/quire.1 DESTINATION share/man/man1)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGE_VENDOR "Quire")
set(CPACK_PACKAGE_CONTACT "Quire maintainers <maintainers@quire.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# Folders as dpkg expects them whatever the umask of whoever packs.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "daemon that serves large language models over HTTP
 Quire answers OpenAI's and Anthropic's APIs from GGUF and safetensors models,
 with continuous batching over a paged KV cache. The package has a small demo
 model, a hardened systemd service and its socket.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/package/conffiles
  ${PROJECT_SOURCE_DIR}/deploy/package/postinst ${PROJECT_SOURCE_DIR}/deploy/package/prerm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
