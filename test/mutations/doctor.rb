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
                only: "test_a_second_librdkafka_or_zstd_in_the_process_is_a_problem_whatever_its_name"

Mutation.define "doctor: a library that only imports a function does not define it",
                file: "lib/penstock/doctor/shared_objects.rb", from: " && symbol[3] != 0 # 0: only wanted",
                test: "test/doctor_test.rb",
                only: "test_a_second_librdkafka_or_zstd_in_the_process_is_a_problem_whatever_its_name"

Mutation.define "doctor: fences no client with the same transactional.id",
                file: "lib/penstock/doctor/cluster.rb", from: ".except(*WITHOUT)",
                test: "test/doctor_test.rb", only: "test_a_transactional_id_in_the_settings_is_left_alone"

Mutation.define "doctor: each step has a time limit",
                file: "lib/penstock/doctor/steps.rb", from: "now < deadline ? retry : raise", to: "retry",
                test: "test/doctor_test.rb", only: "test_a_port_that_says_nothing_is_a_problem_when_the_time_is_up"

Mutation.define "doctor: follows what brokers advertise",
                file: "lib/penstock/doctor/cluster.rb", from: "        advertised(answers)\n",
                test: "test/doctor_test.rb", only: "test_an_advertised_name_that_cannot_be_resolved_is_a_problem_of_the_brokers"

Mutation.define "doctor: repeats no value of its input",
                file: "lib/penstock/cli/kafka_options.rb", from: '"#{where}: expected NAME=VALUE"', # rubocop:disable Lint/InterpolationCheck
                to: '"#{where}: #{text}: expected NAME=VALUE"', # rubocop:disable Lint/InterpolationCheck
                test: "test/cli_test.rb", only: "test_doctor_never_prints_a_secret"

Mutation.define "doctor: warns of gems that bring their own librdkafka",
                file: "lib/penstock/doctor/conflicting_libraries.rb", from: "*gems_with_librdkafka, ",
                test: "test/doctor_test.rb",
                only: "test_gems_that_bring_a_librdkafka_or_a_zstd_of_their_own_are_told_of"

Mutation.define "doctor: at most 50 advertised brokers are checked",
                file: "lib/penstock/doctor/cluster.rb", from: "brokers.first(AT_MOST)", to: "brokers",
                test: "test/doctor_test.rb",
                only: "test_of_thousands_of_advertised_brokers_50_are_looked_at_and_none_is_asked"

Mutation.define "doctor: advertised brokers are checked concurrently",
                file: "lib/penstock/doctor/cluster.rb", from: ".clamp(1, TOGETHER)", to: ".clamp(1, 1)",
                test: "test/doctor_test.rb",
                only: "test_brokers_that_never_answer_are_asked_together_and_what_is_left_out_is_noted"

Mutation.define "doctor: a usage error repeats only the name of an option",
                file: "lib/penstock/cli.rb", from: '[/\A(?:--[\w-]+|-\w)/]', to: "",
                test: "test/cli_test.rb", only: "test_errors_about_usage_repeat_no_value"
