# How Quire is deployed, checked by the tools that will read it. A check whose tool is absent says so and is skipped (77).
function(deploy_test name)
  add_test(NAME deploy_${name} COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${name}.sh $<TARGET_FILE:quire>)
  set_tests_properties(deploy_${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS deploy)
endfunction()

deploy_test(heartbeat)
deploy_test(examples)
deploy_test(guide)
deploy_test(site)
deploy_test(systemd)
deploy_test(monitoring)
deploy_test(compose)
deploy_test(helm)
deploy_test(chart_values)
if(NOT QUIRE_SANITIZE)
  deploy_test(package)  # what is packed is never a sanitizer's build
  deploy_test(release)
endif()
