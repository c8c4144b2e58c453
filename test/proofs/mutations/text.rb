# frozen_string_literal: true

Mutation.define "text: text of brokers is made valid and harmless where it becomes a String",
                file: "ext/penstock/ruby/foreign_text.c",
                from: "    size_t needed = ps_text_clean(NULL, 0, text, size, use);\n",
                to: "    size_t needed = ps_text_clean(NULL, 0, text, size, use);\n" \
                    "    if (size > 0) return rb_utf8_str_new(text, (long)size);\n",
                test: "test/foreign_text_test.rb",
                only: "test_every_call_of_a_rejected_producer_raises_its_documented_error"

Mutation.define "text: failed messages are published whatever the broker's text has",
                file: "ext/penstock/ruby/foreign_text.c",
                from: "    size_t needed = ps_text_clean(NULL, 0, text, size, use);\n",
                to: "    size_t needed = ps_text_clean(NULL, 0, text, size, use);\n" \
                    "    if (size > 0) return rb_utf8_str_new(text, (long)size);\n",
                test: "test/foreign_text_test.rb", only: "test_all_100_failed_messages_are_published_as_errors"

Mutation.define "text: control characters are escaped",
                file: "ext/penstock/core/base/text.c",
                from: "    return code < 0x20 || (code >= 0x7F", to: "    return (code >= 0x7F",
                test: "test/foreign_text_test.rb", only: "test_a_broker_cannot_forge_a_line_of_a_producers_log"

Mutation.define "text: librdkafka's lines on stderr are escaped",
                file: "ext/penstock/core/base/log.c",
                from: "    ps_text_clean(clean, sizeof(clean), line, strlen(line), PS_TEXT_SHOWN);\n",
                to: "    snprintf(clean, sizeof(clean), \"%s\", line);\n",
                test: "test/foreign_text_test.rb", only: "test_a_broker_cannot_forge_a_line_on_stderr"

Mutation.define "text: control characters in statistics are escaped as JSON demands",
                file: "ext/penstock/core/base/text.c", from: "json.inside && code < 0x20", to: "false",
                test: "test/foreign_text_test.rb",
                only: "test_statistics_stay_valid_json_if_a_brokers_name_contains_control_characters"

Mutation.define "text: messages of errors are printable whatever text of users they quote",
                file: "lib/penstock/errors/error.rb",
                from: "super(message.nil? ? nil : Text.printable(message))", to: "super(message)",
                test: "test/foreign_text_test.rb", only: "test_an_id_must_be_utf_8_and_its_control_characters_are_escaped"

Mutation.define "text: a logger's exception in any encoding does not end the thread of the loggers",
                file: "lib/penstock/instrumentation/log_dispatcher.rb",
                from: "\#{Text.describe(e)}", to: "\#{e.class}: \#{e.message}",
                test: "test/foreign_text_test.rb",
                only: "test_an_exception_of_a_logger_with_any_text_is_reported_and_the_logger_is_called_again"
