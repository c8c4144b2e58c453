# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require "penstock/app"

# docs/applications.md: its programs run as they are.
class AppDocsTest < PenstockTest
  SNIPPETS = File.read(File.expand_path("../../docs/applications.md", __dir__)).scan(/^```ruby\n(.*?)^```/m).flatten.freeze
  LIB = File.expand_path("../../lib", __dir__)

  def setup
    super
    @cluster = own_cluster(brokers: 1)
    %w[orders orders-dead].each { |name| @cluster.create_topic(name, partitions: 1) }
  end

  # In a folder with the first program as config/penstock.rb.
  # @return [Array(String, Process::Status)] what it has printed
  def run_program(*command)
    Dir.mktmpdir do |directory|
      Dir.mkdir(File.join(directory, "config"))
      File.write(File.join(directory, "config/penstock.rb"), SNIPPETS.first)
      io = IO.popen([{ "KAFKA" => @cluster.bootstrap_servers }, RbConfig.ruby, "-w", "-I", LIB, *command],
                    chdir: directory, err: %i[child out])
      yield io if block_given?
      output = io.read
      io.close
      [output, $?]
    end
  end

  def executable(command) = [File.expand_path("../../exe/penstock", __dir__), command]

  def test_the_first_program
    producer = self.producer(servers: @cluster.bootstrap_servers)
    producer.produce_many_sync(['{"customer":"ann"}', "{}", "not JSON"].map { |payload| { topic: "orders", payload: } })
    output, status = run_program(*executable("server")) do |io|
      assert_match(/1 group/, io.gets)
      eventually { stored.size == 2 }
      Process.kill(:TERM, io.pid)
    end
    assert_equal 0, status.exitstatus
    errors = output.lines.grep(/\Apenstock: consumer\.consume\.error group=billing topic=orders partition=0 offset=[12] /)
    assert_equal [2, ["orders/0/0: ann\n"]], [errors.size, output.lines - errors] # without a logger they go to stderr
    assert_equal [["{}", "no customer"], ["not JSON", "Penstock::DeserializationError"]],
                 [[stored[0].payload, stored[0].headers["error_message"]], [stored[1].payload, stored[1].headers["error_class"]]]
  end

  # Messages without a key have no order, and nor have their copies.
  def stored
    Penstock.read("orders-dead", "bootstrap.servers": @cluster.bootstrap_servers).sort_by { |copy| copy.headers["source_offset"] }
  end

  slow def test_its_routes
    output, status = run_program(*executable("routes"))
    assert_equal 0, status.exitstatus
    assert_includes output, "\"orders\" to Orders"
  end

  # Starting in a process of its own, a processor in a test, and a batch.
  def test_the_other_programs
    start, test, batch, totals = SNIPPETS[1..]
    program = <<~RUBY
      #{SNIPPETS.first}
      #{start}
      #{test}
      #{batch}
      messages = Array.new(3) { |i| Penstock::Message.new(topic: "t", payload: i.to_s, offset: i, deserializer: :json) }
      Imports.new.process_batch(Penstock::RecordBatch.new(messages))
      #{totals}
      driver = Penstock::Testing.drive(Penstock.app do |app|
        app.kafka = { "bootstrap.servers": "nowhere" }
        app.group("totals") { |group| #{totals[/group\.topic .*/]} }
      end)
      3.times { |i| driver.produce("orders", payload: %({"amount":\#{i}})) }
      p driver.advance(20).committed("totals", "orders")
    RUBY
    output, status = run_program("-r", "penstock/testing", "-e", program)
    assert_equal [0, "everything is finished\norders/0/7: ann\n[0, 1, 2]\n3\n3\n"], [status.exitstatus, output]
  end
end
