# frozen_string_literal: true

require "net/http"
require_relative "../test_helper"
require_relative "../support/rails_application"

# Real applications, made of the blocks of docs/rails.md and README.md exactly as printed. Each block begins with its file's name.
class RailsTest < PenstockTest
  slow

  ROOT = File.expand_path("../..", __dir__)

  # @return [Hash{String => String}] the blocks of a page that name their file
  def self.files_of(page)
    blocks = File.read(File.join(ROOT, page)).scan(/^```ruby\n(.*?)^```/m).flatten
    blocks.filter_map { |block| [Regexp.last_match(1), block] if block =~ %r{\A# ([\w/-]+(?:\.\w+)?)\n} }.to_h
  end

  PAGE = files_of("docs/rails.md").freeze
  README = files_of("README.md").freeze

  # Shows what the page says of the executor: a batch begins without a connection of the one before.
  BILLING = <<~RUBY
    class Billing
      def self.bill(batch)
        pool = ActiveRecord::Base.connection_pool
        puts "begins with \#{pool.stat[:busy]} connections"
        batch.each { |message| puts "billed \#{JSON.parse(message.payload)["item"]} of \#{Order.count}" }
        $stdout.flush
      end
    end
  RUBY

  # @return [String, nil] why the gem cannot be used
  def self.missing(*gems)
    gems.each { |gem| Gem::Specification.find_by_name(gem).runtime_dependencies.each(&:to_spec) }
    nil
  rescue Gem::MissingSpecError => e
    "Rails is not installed for this Ruby: #{e.message.lines.first.chomp}"
  end

  def setup
    super
    reason = self.class.missing("railties", "activerecord", "actionpack", "sqlite3", "puma") and skip reason
    require "sqlite3"
  end

  def teardown
    @application&.close
    @redis&.then { |pid| Process.kill(:TERM, pid) && Process.wait(pid) }
    super
  end

  def application(files, **environment)
    @application = RailsApplication.new({ "app/services/billing.rb" => BILLING, **files },
                                        KAFKA: kafka.bootstrap_servers, **environment)
  end

  # A separate cluster, because its answers may be delayed, which must not affect other tests.
  def kafka = @kafka ||= own_cluster.tap { |made| made.create_topic("orders", partitions: 1) }

  # @return [Array<String>] items of the orders in the topic, as soon as there are that many
  def items(count, topic = "orders")
    reader = Penstock::Consumer.new("bootstrap.servers": kafka.bootstrap_servers)
    reader.assign(topic => { 0 => :beginning })
    found = []
    missing = -> { "only #{found.map(&:payload)}, see\n#{@application.outputs}" }
    eventually(30, missing) { found.concat(reader.poll_batch(max: 100, timeout: 1)).size >= count }
    found.map { |message| JSON.parse(message.payload)["item"] }
  ensure
    reader&.close
  end

  def eventually_prints(program, text)
    eventually(60, -> { program.output }) { program.output.include?(text) || !program.running? }
    assert_includes program.output, text
  end

  # With Ruby 3.3, a worker of Puma 8.0.2 may hang at SIGTERM: one thread closes the pipe that the signal trap still writes to,
  # and IO#close waits for ever. With an empty Rack application and without Penstock, 4 of 60 workers did on a busy machine. With
  # this write, which does not release the GVL, none of 200 did.
  PIPE = { "pipe.rb" => <<~RUBY }.freeze
    require "puma"
    require "puma/server"
    Puma::Server.prepend(Module.new do
      private def notify_safely(message)
        @notify.write_nonblock(message)
      rescue IOError, SystemCallError, NoMethodError
        nil # the server has ended
      end
    end)
  RUBY

  # @return [Integer] the port that Puma listens on
  def start_puma
    PIPE.each { |path, text| @application.write(path, text) }
    @puma = @application.start("-r./pipe", "-S", "puma", "--bind", "tcp://127.0.0.1:0")
    eventually_prints(@puma, "Listening on")
    Integer(@puma.output[/Listening on .*:(\d+)$/, 1])
  end

  # @return [Integer] the process that answered
  def order(port, item)
    answer = Net::HTTP.post_form(URI("http://127.0.0.1:#{port}/orders"), item:)
    assert_equal "201", answer.code, -> { "#{answer.body}\n#{@puma.output}\n#{@application.log}" }
    answer.body.to_i
  end

  # The cluster answers late, so the messages are in flight when SIGTERM arrives.
  # @return [Array<Integer>] the processes that answered
  def order_and_terminate(port, items)
    kafka.set_round_trip_time(seconds: 1)
    pids = items.map { |item| order(port, item) }.uniq
    assert_ends_at_sigterm(@puma)
    assert_empty(pids.select { |pid| alive?(pid) })
  ensure
    kafka.set_round_trip_time(seconds: 0)
  end

  def assert_ends_at_sigterm(program, status = 128 + 15)
    program.signal(:TERM)
    ended = program.wait
    assert_equal status, ended.exitstatus || (128 + ended.termsig), program.output
  end

  def alive?(pid)
    Process.kill(0, pid)
  rescue Errno::ESRCH
    false
  end

  LAST = Array.new(10) { |i| "last #{i}" }.freeze

  # ---- Puma ----

  def test_workers_of_a_preloaded_puma_deliver_everything_before_they_end
    application(PAGE)
    port = start_puma
    workers = []
    eventually(30) { (workers << order(port, "tea")).uniq.size == 2 } # until both have connected
    items(workers.size)
    order_and_terminate(port, LAST)
    assert_equal LAST, items(workers.size + LAST.size).last(LAST.size).sort
    assert_equal 2, @application.log.scan(/\[tagged\] penstock .*event=producer\.connected/).size # the listener's, of each worker
  end

  def test_the_initializer_of_the_readme_works_in_a_puma_of_one_process
    application({ **README, **PAGE.slice("app/models/order.rb") })
    port = start_puma
    order(port, "tea")
    items(1)
    order_and_terminate(port, LAST)
    assert_equal ["tea", *LAST], items(1 + LAST.size).sort_by { |item| LAST.index(item) || -1 }
  end

  # What the page documents about hooks, for the installed version of Puma.
  BUFFERING = {
    "config/puma.rb" => <<~RUBY,
      workers 1
      hook = respond_to?(:before_worker_shutdown) ? :before_worker_shutdown : :on_worker_shutdown
      public_send(hook) { PRODUCER.close }
    RUBY
    "app/models/order.rb" => <<~RUBY
      class Order < ActiveRecord::Base
        after_commit { PRODUCER.buffer(topic: "orders", payload: to_json) }
      end
    RUBY
  }.freeze

  def test_a_hook_of_puma_sends_the_buffer
    application({ **README, **BUFFERING })
    port = start_puma
    order(port, "tea")
    order(port, "milk")
    assert_ends_at_sigterm(@puma)
    assert_equal %w[tea milk], items(2)
  end

  # ---- Sidekiq ----

  # The last job ends while Sidekiq stops. It sends a message after :quiet and :shutdown, and one without a wait.
  JOBS = {
    "app/sidekiq/last_job.rb" => <<~RUBY,
      class LastJob
        STOPPING = Thread::Queue.new
        include Sidekiq::Job

        def perform
          Process.kill(:TERM, Process.pid)
          STOPPING.pop
          PRODUCER.produce_sync(topic: "orders", payload: { item: "while stopping" }.to_json)
          PRODUCER.produce_async(topic: "orders", payload: { item: "in flight" }.to_json)
        end
      end
    RUBY
    "config/initializers/sidekiq.rb" => <<~RUBY
      Sidekiq.configure_server do |config|
        config.on(:startup) do
          order = Order.create!(item: "tea")
          ExportJob.perform_async(order.id, order.id)
          LastJob.perform_async
        end
        config.on(:shutdown) { LastJob::STOPPING << true }
      end
    RUBY
  }.freeze

  def start_redis(socket)
    skip "redis-server is not installed" unless system("redis-server", "--version", out: File::NULL, err: File::NULL)
    @redis = spawn("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", out: File::NULL)
    eventually { File.exist?(socket) }
  end

  def test_jobs_of_sidekiq_deliver_until_the_process_ends
    reason = self.class.missing("sidekiq") and skip reason
    socket = File.join(Dir.mktmpdir("penstock-redis"), "socket")
    start_redis(socket)
    kafka.create_topic("exports", partitions: 1)
    application({ **PAGE, **JOBS }, REDIS_URL: "unix://#{socket}")
    output, status = @application.run("-S", "sidekiq", "-c", "2")
    assert_predicate status, :success?, output
    assert_equal ["tea"], items(1, "exports")
    assert_equal ["tea", "while stopping", "in flight"], items(3)
  ensure
    FileUtils.rm_rf(File.dirname(socket)) if socket
  end

  # ---- the rake task ----

  def test_the_rake_task_bills_orders_with_reloaded_code_until_sigterm
    application(PAGE, RAILS_ENV: "development")
    writer = producer(servers: kafka.bootstrap_servers, **QUICK)
    send = ->(item) { writer.produce_sync(topic: "orders", payload: { item: }.to_json) }
    task = @application.start("bin/rails", "orders:bill")
    send.call("tea")
    eventually_prints(task, "billed tea of 0")
    send.call("milk")
    eventually_prints(task, "billed milk of 0")
    @application.write("app/services/billing.rb", BILLING.sub("billed", "cashed"))
    send.call("sugar")
    eventually_prints(task, "cashed sugar of 0")
    assert_ends_at_sigterm(task, 0)
    assert_includes task.output, "left the group: true"
    assert_equal ["begins with 0 connections"], task.output.lines(chomp: true).grep(/begins/).uniq
  end

  # ---- without Kafka ----

  AWAY = <<~RUBY
    Order.create!(item: "tea")
    PRODUCER.produce_sync(topic: "orders", payload: "x")
  RUBY

  def test_while_kafka_is_away_a_caller_gets_an_error_and_the_log_says_why
    application(PAGE, KAFKA: "127.0.0.1:1")
    output, status = @application.run("bin/rails", "runner", AWAY)
    refute_predicate status, :success?
    assert_includes output, "Penstock::BrokersUnreachableError"
    assert_match(/127\.0\.0\.1:1\b.*Connect to/, @application.log) # a line of librdkafka's
    assert_match(/event=error\.occurred type=librdkafka\.dispatch_error topic=orders/, @application.log) # of the order
  end

  # ---- development and tests ----

  # What the page documents about errors, which its own tests do not cover.
  FAILURES = { "test/models/failures_test.rb" => <<~RUBY }.freeze
    require "test_helper"

    class FailuresTest < ActiveSupport::TestCase
      class Raising < ActiveRecord::Base
        self.table_name = "orders"
        COMMITTED = []
        after_commit do
          COMMITTED << item
          raise "not published"
        end
      end

      test "an exception in after_commit leaves the transaction and skips the other callbacks" do
        assert_raises(RuntimeError) { Raising.transaction { %w[tea milk].each { |item| Raising.create!(item: item) } } }
        assert_equal [%w[tea milk], %w[tea]], [Raising.order(:id).pluck(:item), Raising::COMMITTED]
      end

      Reports = Struct.new(:errors) { def report(error, **) = errors << error.code }

      test "a message that is not delivered is reported" do
        skip unless Rails.respond_to?(:error)
        Rails.error.subscribe(reports = Reports.new([]))
        PRODUCER.client.fail_next(:msg_timed_out)
        Order.create!(item: "tea")
        assert_equal [:msg_timed_out], reports.errors
      end
    end
  RUBY

  def test_the_tests_of_the_page_pass
    application({ **PAGE, **FAILURES }, RAILS_ENV: "test")
    output, status = @application.run("bin/rails", "test")
    assert_predicate status, :success?, output
    assert_match(/^5 runs, \d+ assertions, 0 failures, 0 errors/, output)
  end

  def test_a_command_finds_an_embedded_cluster_and_gets_the_sigterm
    application(PAGE)
    send = 'PRODUCER.produce_sync(topic: "orders", payload: { item: "tea" }.to_json)'
    @application.write("lib/tasks/send.rake", "task(send: :environment) { #{send} }")
    task = @application.start("bin/with-kafka", RbConfig.ruby, "-S", "rake", "send", "orders:bill", KAFKA: nil)
    eventually_prints(task, "billed tea of 0")
    assert_ends_at_sigterm(task, 0)
    assert_includes task.output, "left the group: true"
  end
end
