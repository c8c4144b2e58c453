# frozen_string_literal: true

Mutation.define "doctor: warns of an ffi below 1.17",
                file: "lib/penstock/doctor/conflicting_libraries.rb",
                from: "next Fact.ok(\"ffi\", text) if Gem::Version.new(version).release >= Gem::Version.new(FFI_MENDED)",
                to: "next Fact.ok(\"ffi\", text) if version >= FFI_MENDED",
                test: "test/doctor_test.rb", only: "test_an_old_ffi_in_the_process_or_the_bundle_is_a_problem"

Mutation.define "doctor: a second librdkafka is found by what it exports",
                file: "lib/penstock/doctor/conflicting_libraries.rb", from: '@objects.defining("rd_kafka_new")',
                to: "@objects.named(/librdkafka/)",
                test: "test/doctor_test.rb",
                only: "test_a_second_librdkafka_or_zstd_in_the_process_is_a_problem_under_any_name"

Mutation.define "doctor: a library that only imports a function does not define it",
                file: "lib/penstock/doctor/shared_objects.rb", from: " && symbol[3] != 0 # 0: only wanted",
                test: "test/doctor_test.rb",
                only: "test_a_second_librdkafka_or_zstd_in_the_process_is_a_problem_under_any_name"

Mutation.define "doctor: fences no client with the same transactional.id",
                file: "lib/penstock/doctor/cluster.rb", from: ".except(*WITHOUT)",
                test: "test/doctor_test.rb", only: "test_a_transactional_id_in_the_settings_is_not_used"

Mutation.define "doctor: each step has a time limit",
                file: "lib/penstock/doctor/steps.rb", from: "now < deadline ? retry : raise", to: "retry",
                test: "test/doctor_test.rb", only: "test_a_silent_port_is_a_problem_at_the_timeout"

Mutation.define "doctor: follows what brokers advertise",
                file: "lib/penstock/doctor/cluster.rb", from: "        advertised(answers)\n",
                test: "test/doctor_test.rb", only: "test_an_unresolvable_advertised_name_is_a_problem_of_the_broker"

Mutation.define "doctor: repeats no value of its input",
                file: "lib/penstock/cli/kafka_options.rb", from: '"#{where}: expected NAME=VALUE"', # rubocop:disable Lint/InterpolationCheck
                to: '"#{where}: #{text}: expected NAME=VALUE"', # rubocop:disable Lint/InterpolationCheck
                test: "test/cli_test.rb", only: "test_doctor_never_prints_a_secret"

Mutation.define "doctor: warns of gems that bring their own librdkafka",
                file: "lib/penstock/doctor/conflicting_libraries.rb", from: "*gems_with_librdkafka, ",
                test: "test/doctor_test.rb",
                only: "test_gems_that_bundle_librdkafka_or_zstd_are_reported"

Mutation.define "doctor: at most 50 advertised brokers are checked",
                file: "lib/penstock/doctor/cluster.rb", from: "brokers.first(AT_MOST)", to: "brokers",
                test: "test/doctor_test.rb",
                only: "test_of_thousands_of_advertised_brokers_50_are_examined_and_none_is_queried"

Mutation.define "doctor: advertised brokers are checked concurrently",
                file: "lib/penstock/doctor/cluster.rb", from: ".clamp(1, TOGETHER)", to: ".clamp(1, 1)",
                test: "test/doctor_test.rb",
                only: "test_silent_brokers_are_queried_in_parallel_and_omitted_brokers_are_noted"

Mutation.define "doctor: a usage error repeats only the name of an option",
                file: "lib/penstock/cli.rb", from: '[/\A(?:--[\w-]+|-\w)/]', to: "",
                test: "test/cli_test.rb", only: "test_usage_errors_repeat_no_value"
