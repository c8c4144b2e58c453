# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/configuration_guide"

# docs/configuration.md says what the code does.
class ConfigurationGuideTest < PenstockTest
  PAGE = File.read(ConfigurationGuide::PAGE)
  SERVERS = { "bootstrap.servers": "127.0.0.1:1" }.freeze
  NEW = { "producer" => Penstock::Config, "consumer" => Penstock::ConsumerConfig, "admin" => Penstock::AdminConfig }.freeze

  # @return [Array<Array<String>>] the cells of the tables below a heading, without the heads of the tables
  def rows(heading)
    lines = PAGE[/^## #{Regexp.escape(heading)}\n.*?(?=^## |\z)/m].lines(chomp: true).grep(/\A\|/)
    heads = lines.each_index.select { |i| lines[i].start_with?("|---") }
    (lines.each_index.to_a - heads - heads.map { |i| i - 1 }).map do |i|
      lines[i].delete_prefix("|").delete_suffix("|").split(/(?<!\\)\|/).map(&:strip)
    end
  end

  def rows_of(client) = rows("Settings of #{client == "admin" ? "admin client" : client}s")
  def text(cell) = cell[/\A`(.*)`\z/, 1]

  def evaluated(code) = eval(code, binding, __FILE__, __LINE__) # rubocop:disable Security/Eval

  # @return [Object] what has the setting, and its own name
  def owner(config, path)
    *groups, name = path.split(".")
    [groups.reduce(config, :public_send), name]
  end

  def finished(client, path = nil, value = nil)
    config = NEW.fetch(client).new
    config.kafka = SERVERS.dup
    config.logger = Logger.new(StringIO.new) # for warnings
    object, name = owner(config, path) if path
    object&.public_send("#{name}=", value)
    config.send(:finish)
  end

  def accepts?(...)
    finished(...)
    true
  rescue Penstock::ConfigurationInvalidError
    false
  end

  # `rake docs:configuration` brings the page up to date.
  def test_the_tables_are_those_that_the_code_gives
    written = ConfigurationGuide.new.write(PAGE)
    assert_empty written.lines - PAGE.lines
    assert_operator written, :==, PAGE
  end

  NEW.each_key do |client|
    define_method("test_every_setting_of_a_#{client}_can_be_set_and_is_checked") do
      rows_of(client).each do |path, type, default, allowed|
        path = text(path)
        refute accepts?(client, path, BasicObject), path unless path.end_with?("client_class")
        check_numbers(client, path, allowed) if type.start_with?("Integer")
        assert_equal type.include?("nil"), accepts?(client, path, nil), path unless path == "kafka"
        next if default == "generated" || path == "kafka"

        assert accepts?(client, path, evaluated(text(default))), path
      end
    end
  end

  def check_numbers(client, path, allowed)
    least = Integer(allowed[/\A(?:at least )?(-?[\d_]+)/, 1])
    most = allowed[/ to ([\d_]+)/, 1]&.then { |number| Integer(number) }
    assert accepts?(client, path, least), path
    refute accepts?(client, path, least - 1), path
    assert_equal least.zero? || allowed.include?("; 0: "), accepts?(client, path, 0), path
    [least + 0.5, least.to_s].each { |value| refute accepts?(client, path, value), path }
    assert accepts?(client, path, most || 2**53), path
    refute accepts?(client, path, (most || 2**53) + 1), path
  end

  # ---- Kafka settings ----

  def test_the_examples_of_wrong_settings_raise_with_the_part_of_the_message
    wrong = rows("Wrong settings raise at once").select { |row| row.size == 3 }
    refute_empty wrong
    wrong.each do |_, example, part|
      kafka = evaluated("{ #{text(example)} }")
      error = assert_raises(Penstock::ConfigurationInvalidError, example) { Penstock::Producer.new(**SERVERS, **kafka) }
      assert_includes error.message, part
    end
  end

  # test/config/config_test.rb and test/config/kafka_checks_test.rb have the other rows.
  def test_settings_that_contradict_our_defaults_replace_them
    [{ acks: 1 }, { "max.in.flight": 6 }, { retries: 0 }, { "queuing.strategy": "lifo" }].each do |kafka|
      refute_predicate producer(**kafka) { |config| config.logger = Logger.new(StringIO.new) }, :idempotent?, kafka.inspect
    end
    assert_predicate producer(acks: "all"), :idempotent?
    assert_equal ["penstock.none", false], finished("consumer").kafka.values_at(:"group.id", :"enable.auto.commit")
  end
end
