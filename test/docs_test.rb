# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/fiber_schedulers"

class DocsTest < PenstockTest
  ROOT = File.expand_path("..", __dir__)
  BEHAVIOURS = File.readlines(File.join(ROOT, "docs/behaviours.md"), chomp: true)
  ROWS = BEHAVIOURS.grep(/\A\| .*[^-|]/).map { |line| line.delete_prefix("| ").delete_suffix(" |").split(" | ") }
                   .reject { |row| row.last == "shown by" }
  WAITING = File.read(File.join(ROOT, "docs/waiting.md"))
  EVENTS = File.read(File.join(ROOT, "docs/events.md"))
  # What is asked of us under a number; those between were found to matter to nobody.
  NUMBERS = ([*1..51] - [38, 39, 40, 41]).map { |number| "P#{number}" }.freeze

  # @return [Array<Regexp>] the names of a file's tests; in one that is made in a loop, what is put in may be any word
  def tests_of(file)
    names = File.read(File.join(ROOT, file)).scan(/(?:def |define_method\(:?")(test_(?:\w|\#\{(?:[^{}"]|"[^"]*")*\})*)/).flatten
    names.map { |name| /\A#{name.gsub(/\#\{.*?\}/, "\\w+")}\z/ }
  end

  # @return [Array<Array(String, String)>] file and name
  def named_in(text)
    file = nil
    text.scan(%r{`(test/[\w/]+_test\.rb|test_\w+)`}).flatten.filter_map do |name|
      next [file, name] unless name.end_with?(".rb")

      file = name
      nil
    end
  end

  def test_every_test_that_the_table_of_behaviours_names_exists
    named = ROWS.flat_map { |row| named_in(row.last) }
    assert_operator named.size, :>, 100
    tests = named.map(&:first).uniq.to_h { |file| [file, tests_of(file)] }
    missing = named.reject { |file, name| tests[file].any? { |test| test.match?(name) } }
    assert_empty missing
  end

  def test_every_behaviour_is_shown_by_a_test_or_says_what_is_different_or_to_come
    ROWS.each do |row|
      assert_equal 3, row.size, row.inspect
      assert named_in(row.last).any? || row.last.match?(/(Different|To come): /), row.first
    end
    assert_equal NUMBERS, ROWS.map(&:first).grep(/\AP\d+\z/)
  end

  def test_every_event_has_its_place_in_the_table_and_there_are_no_others
    events = BEHAVIOURS.drop_while { |line| line != "## Events" }.drop(1).take_while { |line| !line.start_with?("#") }
    names = events.flat_map { |line| line.split(" | ").first.to_s.scan(/`(\w+\.\w+)`/).flatten }
    assert_equal Penstock::Monitor::EVENTS.sort, names.uniq.sort
  end

  def test_every_setting_of_the_table_exists
    config = Penstock::Config.new
    settings = BEHAVIOURS.drop_while { |line| line != "## Settings" }.drop(1).take_while { |line| !line.start_with?("#") }
    there = settings.grep_v(/ \| To come: [^|]+ \|\z/)
    names = there.flat_map { |line| line.split(" | ").first.to_s.scan(/`([\w.]+)`/).flatten }
    assert_operator names.size, :>, 25
    names.each { |name| assert_respond_to name.split(".")[0..-2].reduce(config, :public_send), "#{name.split(".").last}=" }
  end

  # One program: the later ones use what the first has made.
  def test_the_ruby_snippets_about_waiting_run_as_they_stand
    skip "the async gem is not to be had for this Ruby" unless FiberSchedulers::KINDS.include?(:async)
    first, *others = WAITING.scan(/^```ruby\n(.*?)^```/m).flatten
    slow = "cluster.set_round_trip_time(20)" # so that no verdict comes before its wait, whatever the machine does
    output = ruby!([first, slow, *others, "[producer, cluster].each(&:close)"].join("\n"))
    expected = ["a thread: offset 0", "fibers: 1000 stored", "no verdict yet: persisted", "drained: persisted"]
    assert_equal expected, output.lines(chomp: true)
  end

  # With what they take for granted before, and something to listen to behind.
  def test_the_ruby_snippets_about_events_run_as_they_stand
    before = <<~RUBY
      listener = Class.new { def on_message_acknowledged(event) = puts("acknowledged \#{event[:offset]}") }.new
      cluster = Penstock::EmbeddedCluster.new
      producer = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": cluster.bootstrap_servers, "statistics.interval.ms": 50 }
      end
    RUBY
    behind = <<~RUBY
      counted = Queue.new
      producer.monitor.subscribe("statistics.emitted") { counted << true }
      producer.produce_sync(topic: "events", payload: "x")
      2.times { counted.pop }
      producer.close
      cluster.close
    RUBY
    output = ruby!([before, *EVENTS.scan(/^```ruby\n(.*?)^```/m).flatten, behind].join("\n"))
    assert_equal ["0", "acknowledged 0"], output.lines(chomp: true)
  end

  # One program too.
  def snippets_of(page) = File.read(File.join(ROOT, "docs", page)).scan(/^```ruby\n(.*?)^```/m).join("\n")

  STAND_INS = { "active_support" => "active_support_stand_in", "opentelemetry" => "opentelemetry_stand_in" }.freeze

  # @return [String] what makes the gem be there, by a stand-in if need be
  def with_gem(name)
    "begin; require #{name.inspect}; rescue LoadError; require #{File.join(__dir__, "support", STAND_INS[name]).inspect}; end\n"
  end

  def test_the_ruby_snippets_about_opentelemetry_run_as_they_stand
    output = ruby!(with_gem("opentelemetry") + snippets_of("opentelemetry.md"))
    assert_equal ["processed hello", "sent 1 by produce_async"], output.lines(chomp: true)
  end

  def test_the_ruby_snippets_about_active_support_run_as_they_stand
    output = ruby!(with_gem("active_support") + snippets_of("listeners-active-support.md"))
    assert_equal ["events took a while", "message.produced_sync.penstock true"], output.lines(chomp: true)
  end

  def test_every_setting_that_the_text_about_waiting_names_exists
    named = WAITING.scan(/`config\.([\w.]+)`/).flatten
    assert_operator named.size, :>, 5
    config = Penstock::Config.new
    named.uniq.each { |name| assert_respond_to name.split(".")[0..-2].reduce(config, :public_send), "#{name.split(".").last}=" }
  end
end
