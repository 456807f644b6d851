# Programs that print figures; built on demand (ninja bench_scheduler), never run by the tests.
function(quire_bench name)
  add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench/${name}.cpp)
  target_link_libraries(${name} PRIVATE quire_options ${ARGN})
endfunction()

quire_bench(bench_scheduler quire_engine)
quire_bench(bench_sampler quire_engine)
quire_bench(bench_draft quire_engine)
quire_bench(bench_memory quire_engine)
quire_bench(bench_shared quire_engine)
quire_bench(bench_fair quire_engine)
quire_bench(bench_time quire_engine)
quire_bench(bench_server quire_server)
target_sources(bench_server PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/bench/costless_engine.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/bench/stream_client.cpp)
quire_bench(bench_daemon quire_engine)
target_sources(bench_daemon PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/bench/stream_client.cpp)
