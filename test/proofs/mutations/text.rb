# frozen_string_literal: true

# Text of brokers and users, before it is shown.

Mutation.area("text", test: "test/native/foreign_text_test.rb") do
  without :broker_text_cleaned, "text of brokers is made valid and harmless where it becomes a String",
          before: "if (size > 0) return rb_utf8_str_new(text, (long)size);",
          only: "test_names_of_brokers_and_clusters_are_valid_utf_8_without_control_characters"
  without :text_control_characters, "control characters are escaped",
          sub: { "code < 0x20 || " => "" }, only: "test_a_broker_cannot_forge_a_line_of_a_producers_log"
  without :text_stderr, "librdkafka's lines on stderr are escaped",
          by: 'snprintf(clean, sizeof(clean), "%s", line);', only: "test_a_broker_cannot_forge_a_line_on_stderr"
  without :text_json, "control characters in statistics are escaped as JSON demands",
          sub: { "json.inside && code < 0x20" => "false" },
          only: "test_statistics_stay_valid_json_if_a_brokers_name_contains_control_characters"
  without :text_error_messages, "messages of errors are printable whatever text of users they quote",
          sub: { ".nil? ? nil : Text.printable(message)" => "" },
          only: "test_an_id_must_be_utf_8_and_its_control_characters_are_escaped"
  without :text_logger_error, "a logger's exception in any encoding does not end the thread of the loggers",
          sub: { "Text.describe(e)" => "e.class}: \#{e.message" },
          only: "test_an_exception_of_a_logger_with_any_text_is_reported_and_the_logger_is_called_again"
end
