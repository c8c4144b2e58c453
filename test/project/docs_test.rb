# frozen_string_literal: true

require "socket"
require_relative "../test_helper"
require "penstock/app"
require_relative "../support/document_links"
require_relative "../support/fiber_schedulers"

class DocsTest < PenstockTest
  slow(/_snippets_about_(groups|consuming|other_clients|deploying|transactions|reading)_/)

  ROOT = File.expand_path("../..", __dir__)
  WAITING = File.read(File.join(ROOT, "docs/waiting.md"))
  EVENTS = File.read(File.join(ROOT, "docs/events.md"))

  # @return [Hash{String => Array<Symbol>}] the events of docs/events.md, and their keys without producer_id
  def documented_events
    rows = EVENTS[/^## All events.*?^\| `type` of/m].lines.grep(/^\| `/).map { |line| line.split("|").map(&:strip) }
    rows.pop # the head of the next table
    rows.flat_map { |row| row[1].scan(/`([\w.]+)`/).flatten.product([row[2].scan(/`(\w+)`/).flatten.map(&:to_sym).sort]) }.to_h
  end

  def test_the_table_of_events_lists_exactly_the_existing_events
    assert_equal Penstock::Monitor::EVENTS.sort, documented_events.keys.sort
  end

  # Each call that needs nothing but a cluster. test_each_event_has_its_keys and others check the remaining events.
  def test_events_have_the_keys_that_the_table_lists
    seen = Thread::Queue.new
    listener = Penstock.monitor.subscribe(Class.new do
      Penstock::Monitor::EVENTS.each { |name| define_method(:"on_#{name.tr(".", "_")}") { |event| seen << event } }
    end.new)
    publish_events_of(producer)
    publish_events_of(producer("transactional.id": "documented-#{rand(2**32)}"))
    publish_events_of_a_consumer
    events = Array.new(seen.size) { seen.pop }.reject { |event| event.id == "error.occurred" }.to_h { |event| [event.id, event] }
    refute_empty events
    keys = events.transform_values { |event| event.payload.keys.sort - %i[producer_id consumer_id] }
    assert_equal documented_events.slice(*events.keys), keys
  ensure
    Penstock.monitor.unsubscribe(listener)
  end

  def publish_events_of(producer)
    message = { topic:, payload: "x" }
    %i[produce_sync produce_async buffer].each { |call| producer.public_send(call, message) }
    %i[produce_many_sync produce_many_async buffer_many].each { |call| producer.public_send(call, [message]) }
    %i[flush_sync flush_async purge disconnect].each { |call| producer.public_send(call) }
    producer.transactional? && producer.transaction { raise Penstock::AbortTransaction }
    producer.produce_sync(message)
    producer.close
  end

  def publish_events_of_a_consumer
    name = topic(partitions: 1)
    producer.produce_sync(topic: name, payload: "x")
    consumer = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": "documented-#{rand(2**32)}",
                                      "auto.offset.reset": "earliest", "enable.auto.commit": false).subscribe(name)
    eventually { consumer.poll }
    consumer.commit
    assert_raises(Penstock::CommitError) { consumer.commit({ "not-there" => { 0 => 1 } }) }
    consumer.close
  end

  # The snippets run as one program: later snippets use variables of earlier ones.
  def test_the_ruby_snippets_about_waiting_run_unchanged
    skip "the async gem is not available for this Ruby" unless FiberSchedulers::KINDS.include?(:async)
    first, *others = WAITING.scan(/^```ruby\n(.*?)^```/m).flatten
    slow = "cluster.set_round_trip_time(seconds: 0.02)" # so each wait begins before its delivery result arrives
    output = ruby!([first, slow, *others, "[producer, cluster].each(&:close)"].join("\n"))
    expected = ["a thread: offset 0", "fibers: 1000 stored", "no result yet: persisted"]
    assert_equal expected, output.lines(chomp: true)
  end

  # Code before the snippets defines what they assume; code after them causes events.
  def test_the_ruby_snippets_about_events_run_unchanged
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
    assert_equal ["0 delivered, 0 in flight, p99 nil ms", "0", "acknowledged 0"], output.lines(chomp: true)
  end

  # These snippets also run as one program.
  def snippets_of(page) = File.read(File.join(ROOT, "docs", page)).scan(/^```ruby\n(.*?)^```/m).join("\n")

  STAND_INS = { "active_support" => "active_support_stand_in", "opentelemetry" => "opentelemetry_stand_in" }.freeze

  # @return [String] code that loads the gem, or a stand-in if it is not installed
  def with_gem(name)
    stand_in = File.join(__dir__, "../support", STAND_INS[name])
    "begin; require #{name.inspect}; rescue LoadError; require #{stand_in.inspect}; end\n"
  end

  def test_the_ruby_snippets_about_opentelemetry_run_unchanged
    output = ruby!(with_gem("opentelemetry") + snippets_of("opentelemetry.md"))
    assert_equal ["processed hello", "sent 1 by produce_async"], output.lines(chomp: true)
  end

  def test_the_ruby_snippets_about_active_support_run_unchanged
    output = ruby!(with_gem("active_support") + snippets_of("listeners-active-support.md"))
    assert_equal ["events took a while", "message.produced_sync.penstock true"], output.lines(chomp: true)
  end

  def test_the_ruby_snippet_about_errors_runs_unchanged
    output = ruby!("#{snippets_of("errors.md")}\n[producer, cluster].each(&:close)")
    assert_equal ["wrong partition 99 of events"], output.lines(chomp: true)
  end

  def test_the_ruby_snippets_about_ractors_run_unchanged
    output = ruby!("#{snippets_of("ractors.md")}\n[producer, cluster].each(&:close)")
    assert_equal ["404 stored", "Penstock::NotShareableError", "true"], output.lines(chomp: true)
  end

  def test_the_ruby_snippets_about_producing_run_unchanged
    snippets = File.read(File.join(ROOT, "docs/producing.md")).scan(/^```ruby\n(.*?)^```/m).flatten
    pools = Gem::Specification.find_all_by_name("connection_pool").any?
    snippets.reject! { |snippet| snippet.include?("ConnectionPool") } unless pools
    expected = ["offset 0, persisted", "order 2", "100", "3", "3", "1", "persisted", "orders", "persisted", "10 accepted",
                *("persisted" if pools), "true", "true"]
    assert_equal expected, ruby!(snippets.join("\n")).lines(chomp: true)
  end

  # test/integration/producer_transaction_test.rb runs them on a real Kafka.
  slow def test_the_ruby_snippets_about_transactions_run_unchanged
    assert_equal ["true", "nil", "4 billed", "fenced", "true"], ruby!(snippets_of("transactions.md")).lines(chomp: true)
  end

  def test_the_ruby_snippets_about_configuration_run_as_they_stand
    expected = ["billing-1", "true", 'did you mean "linger.ms"?', "[hidden]"]
    assert_equal expected, ruby!(snippets_of("configuration.md")).lines(chomp: true)
  end

  def test_the_ruby_snippets_about_performance_run_as_they_stand
    handles, delivered, latency, queued = ruby!(snippets_of("performance.md")).lines(chomp: true)
    assert_equal %w[10000 10000 0], [handles, delivered, queued]
    assert_predicate Float(latency), :positive?
  end

  # The rake task runs before the last snippet and gets its signal after it has committed.
  slow def test_the_ruby_snippets_about_consuming_run_unchanged
    *first, last = File.read(File.join(ROOT, "docs/consuming.md")).scan(/^```ruby\n(.*?)^```/m).flatten
    invoke = <<~RUBY
      ENV["KAFKA"] = cluster.bootstrap_servers
      watcher = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing")
      Thread.new { sleep 0.05 until watcher.committed("orders", 0)[0]; Process.kill(:TERM, Process.pid) }
      Rake::Task["bill"].invoke
    RUBY
    expected = ["order 0 at 0", "order 1 at 1", "until 12:30", '["order 2", "order 3"]', "2", "2", "1", "set aside: offset 2",
                '[{"id"=>2}, nil]', "true", "{0=>3}",
                "billed order 0", "billed order 1", "billed order 2", "billed order 3", "billed order 4", "billed order 5",
                "left the group: true"]
    in_shapes, others = lines_of(["require 'rake'; extend Rake::DSL", *first, invoke, last].join("\n")).partition do |line|
      line.match?(/\Aorder \d\z/)
    end
    assert_equal expected, others
    assert_equal [4] * 6, in_shapes.tally.values # one thread, two consumers, and workers read them
  end

  # What `inspect` writes is that of every Ruby.
  def lines_of(script) = ruby!(script).gsub(" => ", "=>").lines(chomp: true)

  slow def test_the_ruby_snippets_about_groups_run_unchanged
    expected = ["assigned orders [0]", "4", "revoked", "order 4", "rendered order 0", "rendered order 1", "stable", "0",
                '{"orders"=>[0]}', "nil", "1", '{"orders"=>{0=>4}}', '{"orders"=>{0=>4}}']
    *lines, in_any_order = lines_of(snippets_of("groups.md"))
    assert_equal %w[0 1 2 3 3 4 4 5 5], in_any_order.split.sort
    assert_equal expected, lines
  end

  def test_the_ruby_snippets_about_reading_run_unchanged
    expected = ["order 4", "order 5", "[0, 1, 2]", "0 of 6", "6 of 6", "6", "1.0", "order 3", "[0, 6]", "order 4"]
    assert_equal expected, lines_of(snippets_of("reading.md"))
  end

  # The worker runs, and gets its signal, before the last snippet.
  def test_the_ruby_snippets_about_deploying_run_as_they_stand
    worker, check, lag = File.read(File.join(ROOT, "docs/deploying.md")).scan(/^```ruby\n(.*?)^```/m).flatten
    before = <<~RUBY
      require "penstock"
      cluster = Penstock::EmbeddedCluster.new
      ENV["KAFKA"] = cluster.bootstrap_servers
      cluster.create_topic("orders", partitions: 2)
      producer = Penstock::Producer.new("bootstrap.servers": cluster.bootstrap_servers)
      orders = Array.new(5) { |i| { topic: "orders", partition: i % 2, payload: i.to_s } }
      producer.produce_many_sync(orders)
    RUBY
    run = <<~RUBY
      Thread.new { sleep 0.05 until lag("billing", "orders", [0, 1]).values.sum.zero?; Process.kill(:TERM, Process.pid) }
      puts LIVENESS.call({}).first
      worker.run
      producer.produce_sync(orders.first)
      p lag("billing", "orders", [0, 1])
      reader = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers)
      reader.assign("bills" => [0, 1, 2, 3].to_h { |partition| [partition, :beginning] })
      p Array.new(5) { reader.poll(timeout: 10).payload }.sort
      [reader, producer, cluster].each(&:close)
    RUBY
    output = ruby!([before, worker, check, lag, run].join("\n"))
    expected = ["200", "left the group: true", "all delivered: true", "{0=>1, 1=>0}", '["0", "1", "2", "3", "4"]']
    assert_equal expected, output.gsub(" => ", "=>").lines(chomp: true)
  end

  # The loop with attempts is only defined there: it runs at the end.
  def test_the_ruby_snippets_about_other_clients_run_as_they_stand
    before = <<~RUBY
      cluster = Penstock::EmbeddedCluster.new
      ENV["KAFKA"] = cluster.bootstrap_servers
      cluster.create_topic("orders", partitions: 3)
    RUBY
    behind = <<~RUBY
      settings = { "bootstrap.servers": ENV["KAFKA"], "group.id": "attempts", "auto.offset.reset": "earliest" }
      failures = [IOError.new("a disk is full")]
      consumer = Penstock::Consumer.new(**settings)
      consumer.subscribe("orders")
      keys = []
      consume(consumer) do |message|
        failure = failures.pop and raise failure
        keys << message.key
        break if keys.size == 2
      end
      p keys.sort
      [consumer, cluster].each(&:close)
    RUBY
    output = ruby!(["require 'penstock'", before, snippets_of("coming-from.md"), behind].join("\n"))
    expected = ["acknowledged 0", "unknown_partition", "7 tea", "true", "again: a disk is full", '["7", "customer-7"]']
    assert_equal expected.sort, output.lines(chomp: true).sort # the first is a listener's, on another thread
  end

  def test_the_metrics_that_alerts_are_about_exist
    named = File.read(File.join(ROOT, "docs/deploying.md")).scan(/`penstock_(\w+)`/).flatten
    refute_empty named
    assert_empty named - Penstock::Listeners::Prometheus.const_get(:FAMILIES).keys.map(&:to_s)
  end

  def snippets_about_testing
    File.read(File.join(ROOT, "docs/testing.md")).scan(/^```ruby\n(.*?)^```/m).flatten.partition { |text| text.include?("RSpec") }
  end

  def test_the_ruby_snippets_about_testing_run_unchanged
    _, snippets = snippets_about_testing
    output = ruby!(snippets.join("\n"))
    assert_equal %w[42 persisted], output.lines(chomp: true).first(2)
    assert_includes output, "assertions, 0 failures, 0 errors"
  end

  def test_the_rspec_snippet_about_testing_runs_unchanged
    skip "the rspec gem is not available" if Gem::Specification.find_all_by_name("rspec").empty?
    rspec, others = snippets_about_testing
    snippets = others.grep_v(/[mM]initest|EmbeddedCluster/)
    output = ruby!(["require 'rspec/autorun'", *snippets, *rspec].join("\n"))
    assert_includes output, "examples, 0 failures"
  end

  def test_the_ruby_snippets_about_message_pack_run_unchanged
    output = ruby!("#{snippets_of("message-pack.md")}\n[consumer, producer, cluster].each(&:close)")
    expected = ['["a", "b"]', "7", '[["id", 7]]', "[#<struct Point x=1, y=2>]", "1", "Nested more than 128 deep (max_depth).",
                "this Factory is frozen, as DefaultFactory always is: register types with one of your own " \
                "(Penstock::MessagePack::Factory.new)", "unknown option :symbolise_keys", "7", "EOFError"]
    assert_equal expected, output.lines(chomp: true)
  end

  def test_the_ruby_snippet_about_the_doctor_runs_unchanged
    assert_equal "true", ruby!(snippets_of("doctor.md")).lines(chomp: true).first
  end

  # ---- ready listeners ----

  LISTENERS = %w[logger statsd prometheus].to_h { |name| [name, File.read(File.join(ROOT, "docs/listeners-#{name}.md"))] }

  def run_snippets_of(name, *arguments, **environment)
    snippets = LISTENERS.fetch(name).scan(/^```ruby\n(.*?)^```/m).flatten
    assert_operator snippets.size, :>, 0
    settings = environment.map { |key, value| "ENV[#{key.to_s.inspect}] = #{value.inspect}" }
    ruby!([*settings, *snippets, "[producer, cluster].each(&:close)"].join("\n"), *arguments)
  end

  def test_the_logging_snippet_writes_the_lines_that_its_page_shows
    shown = LISTENERS["logger"][/^```text\n(.*?)^```/m, 1]
    written = run_snippets_of("logger").lines.map { |line| line[/penstock .*/m] }
    assert_equal shown.gsub(/ms=\S+/, "ms="), written.join.gsub(/ms=\S+/, "ms=")
  end

  def test_the_table_of_log_lines_lists_exactly_the_events_that_have_some
    rows = File.read(File.join(ROOT, "docs/listeners-logger.md")).lines.grep(/^\| .*\| /).map { |line| line.split("|")[2] }
    listener = Penstock::Listeners::Logger.new(Logger.new(nil))
    assert_equal Penstock::Monitor::EVENTS.select { |event| listener.respond_to?(Penstock::Monitor.method_for(event)) }.sort,
                 rows.flat_map { |row| row.scan(/`(\w+\.[\w.]+)`/).flatten }.sort
  end

  def test_the_statsd_snippets_send_the_metrics_that_their_page_shows
    server = UDPSocket.new
    server.bind("127.0.0.1", 0)
    run_snippets_of("statsd", STATSD_PORT: server.addr[1].to_s)
    shown = LISTENERS["statsd"][/^```text\n(.*?)^```/m, 1].chomp
    sent = server.recvfrom_nonblock(65_536).first.lines(chomp: true)
    assert_includes sent, shown
  ensure
    server&.close
  end

  def test_the_prometheus_snippet_serves_a_page
    expected = ["200", "text/plain; version=0.0.4; charset=utf-8", 'penstock_messages_total{producer_id="orders"} 1',
                'penstock_messages_delivered_total{producer_id="orders"} 1']
    assert_equal expected, run_snippets_of("prometheus").lines(chomp: true).grep_v(/_failed_|_purged_/)
  end

  def test_every_link_and_image_of_a_page_leads_to_a_file_and_a_heading
    assert_empty DocumentLinks.new(ROOT).broken
  end

  # As in code. Tables, code, and what cannot be broken, may be longer.
  # Below a gap, rows are shown as text.
  def test_rows_of_a_table_follow_its_head
    Dir[File.join(ROOT, "{*,docs/**/*}.md")].each do |path|
      text = File.read(path).gsub(/^```.*?^```/m, "")
      text.split(/^(?!\|).*(?:\n|\z)/).reject(&:empty?).each { |table| assert_match(/\A\|.*\n\|[ :|-]+$/, table, path) }
    end
  end

  def test_lines_of_text_have_at_most_130_columns
    long = Dir["*.md", "{docs,bench,test}/**/*.md", base: ROOT].flat_map do |file|
      text = File.read(File.join(ROOT, file), encoding: "UTF-8").gsub(/^ *(```|~~~).*?^ *\1$/m) { |code| "\n" * code.count("\n") }
      lines = text.lines(chomp: true).each.with_index(1)
      lines = lines.reject { |line, _| line.size <= 130 || line.match?(/\A(?:\s*\|| {4}|\S*\z)/) }
      lines.map { |line, number| "#{file}:#{number}: #{line}" }
    end
    assert_empty long
  end
end
