# frozen_string_literal: true

# What `penstock doctor` finds, and what it must not do.

Mutation.area("doctor", test: "test/cli/doctor_test.rb") do
  without :doctor_ffi_version, "warns of an ffi below 1.17",
          sub: { "Gem::Version.new(version).release >= Gem::Version.new(FFI_MENDED)" => "version >= FFI_MENDED" },
          only: "test_an_old_ffi_in_the_process_or_the_bundle_is_a_problem"
  without :doctor_second_librdkafka, "a second librdkafka is found by what it exports",
          sub: { '@objects.defining("rd_kafka_new")' => "@objects.named(/librdkafka/)" },
          only: "test_a_second_librdkafka_or_zstd_in_the_process_is_a_problem_under_any_name"
  without :doctor_imports_only, "a library that only imports a function does not define it",
          sub: { " && symbol[3] != 0 # 0: only wanted" => "" },
          only: "test_a_second_librdkafka_or_zstd_in_the_process_is_a_problem_under_any_name"
  without :doctor_fences_nobody, "fences no client with the same transactional.id",
          sub: { ".except(*WITHOUT)" => "" }, only: "test_a_transactional_id_in_the_settings_is_not_used"
  without :doctor_step_limit, "each step has a time limit", by: "retry", only: "test_a_silent_port_is_a_problem_at_the_timeout"
  without :doctor_follows_advertised, "follows what brokers advertise",
          only: "test_an_unresolvable_advertised_name_is_a_problem_of_the_broker"
  without :doctor_bundled_librdkafka, "warns of gems that bring their own librdkafka",
          sub: { "*gems_with_librdkafka, " => "" }, only: "test_gems_that_bundle_librdkafka_or_zstd_are_reported"
  without :doctor_advertised_limits, "at most 50 advertised brokers are checked",
          sub: { ".first(AT_MOST)" => "" }, only: "test_of_thousands_of_advertised_brokers_50_are_examined_and_none_is_queried"
  without :doctor_advertised_limits, "advertised brokers are checked concurrently",
          sub: { "TOGETHER" => "1" }, only: "test_silent_brokers_are_queried_in_parallel_and_omitted_brokers_are_noted"
end

Mutation.area("doctor", test: "test/cli/cli_test.rb") do
  without :doctor_repeats_no_value, "repeats no value of its input",
          sub: { ": expected NAME=VALUE" => ": \#{text}: expected NAME=VALUE" },
          only: "test_doctor_never_prints_a_secret"
  without :usage_error_repeats_no_value, "a usage error repeats only the name of an option",
          sub: { "[/\\A(?:--[\\w-]+|-\\w)/]" => "" }, only: "test_usage_errors_repeat_no_value"
end
