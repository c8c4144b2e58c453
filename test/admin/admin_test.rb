# frozen_string_literal: true

require_relative "../test_helper"
require "minitest/mock"
require_relative "../support/admin_test_case"
require_relative "../support/fiber_schedulers"

# The admin client itself: its life, its waits, its values. Operations on a real Kafka: integration/admin_*_test.rb.
class AdminTest < AdminTestCase
  thorough(/requests_leak_nothing/)
  slow(/leak_nothing|stays_usable|under_async|brokers_reject|ctrl_c|trap_that|dropped_fiber|token_provider/)

  include FiberSchedulers

  SOON = GCLevel.slow? ? 5 : 0.2 # seconds

  # ---- answers ----

  # defect 28
  def test_topics_are_described_without_creating_any
    name = topic(partitions: 3)
    missing = "missing-#{rand(2**32)}"
    one = admin
    results = one.topics(name, missing)
    described = results[name]
    assert_equal [name, [0, 1, 2]], [described.name, described.partitions.map(&:id)]
    assert_equal described.partitions.first.replicas.size, described.replication_factor
    error = assert_raises(Penstock::AdminError) { results[missing] }
    assert_equal [:unknown_topic_or_part, missing, one.id], [error.code, error.topic, error.admin_id]
    assert_includes one.topics.keys, name
    refute_includes one.topics.keys, missing
    assert_equal described, one.topic(name)
  end

  def test_the_cluster_is_described
    one = admin(servers: own_cluster(brokers: 3).bootstrap_servers)
    brokers = one.cluster.brokers
    assert_equal [1, 2, 3], brokers.map(&:id)
    assert_equal ["127.0.0.1"], brokers.map(&:host).uniq
    assert_kind_of Integer, brokers.first.port
  end

  def test_values_are_frozen_shareable_and_match_patterns
    name = topic(partitions: 2)
    results = admin.topics(name)
    [results, results[name], admin.cluster].each { |value| assert Ractor.shareable?(value), value.inspect }
    case [results, results[name]]
    in [{ ok: Hash => ok, errors: {} }, { partitions: [{ id: 0, replicas: [Integer, *] }, _] } => described]
      assert_equal({ name => described }, ok)
    end
    assert_raises(FrozenError) { results[name].name = "other" }
  end

  # Admin calls none of its subclass's methods but the public ones.
  def test_a_subclass_may_have_methods_of_any_names
    internals = Penstock::Admin.const_get(:Internals)
    names = internals.instance_methods + internals.private_instance_methods + %i[json native_client check_credentials]
    names -= Object.instance_methods + Object.private_instance_methods + Penstock::Admin.public_instance_methods
    assert_operator names.size, :>, 50
    type = Class.new(Penstock::Admin) do
      names.each { |name| define_method(name) { |*, **| raise NotImplementedError, "Admin called #{name} of its subclass" } }
    end
    name = topic(partitions: 2)
    one = type.new("bootstrap.servers": cluster.bootstrap_servers)
    assert_equal 2, one.topic(name).partitions.size
    refute_empty one.cluster.brokers
    assert_equal({ 0 => 0, 1 => 0 }, one.offsets({ name => { 0 => :end, 1 => :beginning } }).to_h[name])
    assert_kind_of Hash, one.as_json
    assert_includes one.inspect, "open"
    assert_raises(Penstock::ConfigurationInvalidError) { one.set_credentials("a", "b") }
    assert one.close
  end

  # ---- Results ----

  def some_results
    error = Penstock::AdminError.new("broken", code: :unknown_topic_or_part)
    Penstock::Admin::Results.new({ "a" => 1, "b" => error, "c" => 3 })
  end

  def test_results_give_each_value_or_raise_its_error
    results = some_results
    assert_equal [1, 3], [results["a"], results.fetch("c")]
    assert_equal "broken", assert_raises(Penstock::AdminError) { results["b"] }.message
    assert_raises(KeyError) { results["d"] }
    assert_raises(Penstock::AdminError) { results.raise! }
    assert_raises(Penstock::AdminError) { results.values }
  end

  def test_an_error_in_results_can_be_raised_again_with_the_place_of_each_call
    results = some_results
    places = Array.new(2) { assert_raises(Penstock::AdminError) { results["b"] }.backtrace_locations&.first }
    assert_equal 2, places.compact.size
    assert_predicate results.errors["b"], :frozen?
  end

  def test_results_separate_what_succeeded_and_what_failed
    results = some_results
    assert_equal [{ "a" => 1, "c" => 3 }, %w[b], false], [results.ok, results.errors.keys, results.ok?]
    assert_equal [3, %w[a b c], true, false], [results.size, results.keys, results.key?("b"), results.empty?]
    assert_equal %w[a b c], results.map(&:first)
    good = Penstock::Admin::Results.new({ "a" => 1 })
    assert_equal [good, [1], true], [good.raise!, good.values, good.ok?]
    assert_equal good, Penstock::Admin::Results.new({ "a" => 1 })
  end

  # ---- wrong input ----

  WRONG = {
    ->(one) { one.create_topic("a", partition: 3) } => /:partition \(did you mean :partitions\?\)/,
    ->(one) { one.create_topic("a", validate: true) } => /unknown keyword: :validate/,
    ->(one) { one.create_topic("a", partitions: 0) } => /topic "a": partitions must be an Integer from 1 to/,
    ->(one) { one.create_topic("a", partitions: "3") } => /not "3"/,
    ->(one) { one.create_topic("") } => /the name of a topic must be a non-empty/,
    ->(one) { one.create_topic("a\0") } => /zero byte/,
    ->(one) { one.create_topic(:a) } => /not :a/,
    ->(one) { one.create_topic("a b") } => /1 to 249 of the characters a-z A-Z 0-9 \. _ -, not "a b"/,
    ->(one) { one.create_topic("a", config: { "retention.ms" => Float::NAN }) } => /must be a String, Symbol, number/,
    ->(one) { one.topics("a" * 250) } => /1 to 249/,
    ->(one) { one.topics("..") } => /1 to 249/,
    ->(one) { one.offsets({ "a\n" => { 0 => :end } }) } => /1 to 249/,
    ->(one) { one.create_acls(nil) } => /class NilClass/,
    ->(one) { one.alter_configs({ "\xFF" => {} }) } => /unknown key/,
    ->(one) { one.alter_scram_users(delete: { "a" => "\xFF" }) } => /the mechanism must be/,
    ->(one) { one.groups(states: []) } => /no state is given; nil stands for all/,
    ->(_) { Penstock::Admin::TopicCatalog.new { |declare| declare.topic("a", exact: -> {}) } } => /exact must be true or false/,
    ->(one) { one.create_topic("a", replicas: [[1, 1]]) } => /different ids of brokers for each partition, not \[\[1, 1\]\]/,
    ->(one) { one.create_topic("a", replicas: [[1]], partitions: 1) } => /replicas stands for partitions/,
    ->(one) { one.create_topic("a", config: { "retention.ms" => Object.new }) } => /a: retention.ms must be.* class Object/,
    ->(one) { one.create_topic("a", config: [1]) } => /must be a Hash, not Array/,
    ->(one) { one.create_topics(%w[a]) } => /topics must be a Hash, not Array/,
    ->(one) { one.create_topics({ "a" => { config: { "" => 1 } } }) } => /name of a setting/,
    ->(one) { one.create_topic("a", timeout: 0) } => /above 0 and at most 3600, not 0/,
    ->(one) { one.topics("a", timeout: 3601.0) } => /not 3601.0/,
    ->(one) { one.topics("a", "b", "a", "a") } => /"a" is given twice/,
    ->(one) { one.topics(nil) } => /not nil/,
    ->(one) { one.topics(%w[a]) } => /not \["a"\]/,
    ->(one) { one.topics(authorized_operations: true) } => /requires the names of topics|librdkafka/,
    ->(one) { one.delete_topics("a", "a") } => /"a" is given twice/,
    ->(one) { one.create_partitions({ "a" => 0 }) } => /total must be an Integer from 1/,
    ->(one) { one.create_partitions({ "a" => { replicas: [[1]] } }) } => /how many partitions/,
    ->(one) { one.create_partitions({ "a" => { totl: 3 } }) } => /:totl \(did you mean :total\?\)/,
    # without braces: see Keywords.braced
    ->(one) { one.create_topics("a" => { config: [1] }) } => /must be a Hash, not Array/,
    ->(one) { one.create_topics({ "a" => {} }, "b" => {}) } => /1 positional argument too many/,
    ->(one) { one.create_partitions("a" => 0) } => /total must be an Integer from 1/,
    ->(one) { one.create_partitions("a" => 2, timout: 5) } => /:timout \(did you mean :timeout\?\)/,
    ->(one) { one.offsets("a" => { 0 => :middle }) } => /:middle/,
    ->(one) { one.delete_records("a" => { 0 => -1 }) } => /-1/,
    ->(one) { one.group_offsets("g" => { "a" => [-1] }) } => /-1/,
    ->(one) { one.alter_group_offsets("g", "a" => { 0 => -1 }) } => /-1/,
    ->(one) { one.delete_group_offsets("g", "a" => [-1]) } => /-1/,
    ->(one) { one.elect_leaders(:preferred, "a" => [-1]) } => /-1/,
    ->(one) { one.alter_configs(topics: { "a" => [1] }) } => /Array/,
    ->(one) { one.alter_configs("a" => 1) } => /topics/
  }.freeze

  def test_wrong_input_raises_at_once_and_nothing_connects
    one = frozen_admin
    WRONG.each do |call, text|
      error = assert_raises(ArgumentError, Penstock::UnsupportedError) { call.call(one) }
      assert_match(text, error.message)
    end
    assert_equal :configured, one.state
  end

  # A length has 16 bits in Kafka's protocol. Of a longer text, brokers would read the rest as other fields of the request.
  LONG = "x" * 32_768
  TOO_LONG = {
    "topic" => ->(one) { one.topics(LONG) },
    "setting" => ->(one) { one.create_topic("a", config: { LONG => 1 }) },
    "value" => ->(one) { one.create_topic("a", config: { "b" => LONG }) },
    "list" => ->(one) { one.alter_configs({ topics: { "a" => { "b" => { append: ["x" * 20_000] * 2 } } } }) },
    "group" => ->(one) { one.delete_groups(LONG) },
    "group of offsets" => ->(one) { one.group_offsets({ LONG => nil }) },
    "principal" => ->(one) { one.acls(principal: "User:#{LONG}") },
    "user" => ->(one) { one.alter_scram_users(delete: { LONG => :"SCRAM-SHA-256" }) },
    "metadata" => ->(one) { one.alter_group_offsets("a", { "b" => { 0 => Penstock::Offset.new(offset: 1, metadata: LONG) } }) }
  }.freeze

  TOO_LONG.each do |what, call|
    define_method("test_a_#{what.tr(" ", "_")}_that_is_too_long_for_the_protocol_is_rejected") do
      one = frozen_admin
      error = assert_raises(ArgumentError) { call.call(one) }
      assert_operator error.message.size, :<, 1_200
      assert_equal :configured, one.state
    end
  end

  def test_a_secret_that_is_too_long_for_the_protocol_is_rejected
    change = [[2, "a", [["b", 0, Penstock::Secret.new(LONG)]]]]
    native = Internal.of(admin).instance_variable_get(:@client)
    call = native.respond_to?(:replace_configs) ? :replace_configs : :incremental_alter_configs
    error = assert_raises(ArgumentError) { native.public_send(call, change, { timeout: 100 }) }
    assert_match(/at most 32767 bytes, not 32768/, error.message)
  end

  # librdkafka refuses a state that it is given twice. The embedded cluster lists no groups, which it tells only once it is known.
  def test_a_state_may_be_given_twice
    assert_kind_of Penstock::Admin::GroupListings, admin.groups(states: %i[empty empty])
  rescue Penstock::AdminError, Penstock::UnsupportedError => e
    refute_equal :invalid_arg, e.code if e.is_a?(Penstock::AdminError)
  end

  def test_nothing_to_do_is_no_request
    one = frozen_admin
    assert_equal [0, 0, 0], [one.create_topics({}), one.delete_topics, one.create_partitions({})].map(&:size)
    assert_equal :configured, one.state
  end

  # ---- timeouts ----

  WAYS.each do |name, way|
    { "frozen" => :frozen_admin, "unreachable" => :unreachable_admin }.each do |what, made|
      define_method("test_#{name}_to_an_#{what}_broker_ends_at_its_timeout") do
        one = send(made)
        error = nil
        elapsed = seconds_of { error = assert_raises(Penstock::AdminTimeoutError) { way.call(one, timeout: 0.5) } }
        assert_took(0.49..(GCLevel.slow? ? 10 : 2), elapsed) # on an idle machine 0.53
        assert_kind_of Penstock::TimeoutError, error
        assert_equal [name != "a_request", one.id], [error.retriable?, error.admin_id]
      end
    end

    define_method("test_without_a_timeout_#{name}_takes_that_of_the_configuration") do
      one = unreachable_admin { |config| config.timeout = 100 }
      assert_took(GCLevel.slow? ? 10 : 1, seconds_of { assert_raises(Penstock::AdminTimeoutError) { way.call(one) } })
    end

    # ---- closing ----

    define_method("test_close_ends_#{name}_of_another_thread_at_once") do
      one = frozen_admin
      threads = Array.new(3) { waiting(one, way) }
      ended = threads.map { |thread| Thread.new { assert_raises(Penstock::AdminClosedError) { thread.value } && now } }
      start = now
      assert one.close
      ended.each { |thread| assert_operator thread.value - start, :<, SOON }
      assert_predicate one, :closed?
    end

    define_method("test_calls_of_a_closed_client_raise_#{name}") do
      one = admin.tap(&:close)
      error = assert_raises(Penstock::AdminClosedError) { way.call(one) }
      assert_equal [one.id, :closed], [error.admin_id, one.state]
    end

    define_method("test_a_client_closed_by_a_trap_during_#{name}_raises") do
      one = frozen_admin
      closer = nil
      before = Signal.trap("USR1") { closer = one.close }
      Thread.new do
        eventually { one.state == :open }
        sleep 0.05
        Process.kill(:USR1, Process.pid)
      end
      assert_raises(Penstock::AdminClosedError) { way.call(one, timeout: 60) }
      assert_equal true, closer
    ensure
      Signal.trap("USR1", before || "DEFAULT")
    end
  end

  def test_closing_twice_and_before_the_first_use_does_nothing
    one = frozen_admin
    assert_equal :configured, one.state
    assert_equal [true, true, :closed], [one.close, one.close, one.state]
    assert_raises(Penstock::AdminClosedError) { one.topics }
  end

  # librdkafka's blocking function has no way to end early.
  slow def test_a_question_in_progress_delays_a_close_by_a_second_at_most
    one = frozen_admin
    waiting(one, WAYS["a_question"])
    assert_took(GCLevel.slow? ? 10 : 1.5, seconds_of { assert one.close(timeout: 10) })
  end

  slow def test_close_says_whether_it_ended_in_time_and_goes_on
    one = frozen_admin
    waiting(one, WAYS["a_question"])
    refute one.close(timeout: 0)
    assert_equal :closing, one.state
    eventually { one.state == :closed }
  end

  slow def test_an_interrupt_ends_a_close_which_continues_by_itself
    one = frozen_admin
    waiting(one, WAYS["a_question"])
    elapsed = seconds_of { assert_raises(Timeout::Error) { Timeout.timeout(0.1) { one.close(timeout: 10) } } }
    assert_took(0.1 + SOON, elapsed)
    eventually { one.state == :closed }
  end

  def test_a_client_dropped_without_close_is_closed
    Thread.new { 3.times { Penstock::Admin.new("bootstrap.servers": cluster.bootstrap_servers).topics } }.join
    eventually { GC.start || Internal::ProducerClient.open_count <= @open_before }
  end

  slow def test_a_program_that_ends_with_an_open_client_and_a_waiting_thread_ends_soon
    elapsed = seconds_of do
      assert_equal "asks\n", ruby!(<<~RUBY, frozen_broker)
        one = Penstock::Admin.new("bootstrap.servers": ARGV[0])
        %i[topics cluster].each { |call| Thread.new { one.public_send(call) } }
        thread = Thread.new { one.create_topic("test") }
        sleep 0.01 until thread.stop? && one.state == :open
        puts "asks"
      RUBY
    end
    assert_took(GCLevel.slow? ? 30 : 8, elapsed)
  end

  # ---- a trap while an answer is read ----

  # Closing waits until no thread reads an answer. A trap that interrupts such a thread would wait for itself.
  def test_a_trap_that_closes_the_client_while_its_thread_reads_an_answer_does_not_wait_for_itself
    one = frozen_admin
    elapsed = closed = nil
    close_first = lambda do |*given, **more|
      elapsed = seconds_of { in_trap { closed = one.close } }
      Penstock::AdminError.new(*given, **more)
    end
    Penstock::AdminTimeoutError.stub(:new, close_first) do
      # librdkafka's answer comes before the wait ends, which is a twentieth later.
      assert_raises(Penstock::AdminError) { one.create_topic("test", timeout: 2) }
    end
    assert_took(5, elapsed)
    assert_equal false, closed
    eventually { one.state == :closed }
  end

  # ---- forks ----

  def test_a_child_can_use_clients_that_its_parent_configured_used_or_closed
    name = topic(partitions: 2)
    configured, used, closed = Array.new(3) { admin }
    [used, closed].each(&:topics)
    closed.close
    result = in_child do
      error = assert_raises(Penstock::AdminClosedError) { closed.topics }
      [configured, used].map { |one| [one.topic(name).partitions.size, one.close] } << [error.admin_id, closed.closed?]
    end
    assert_equal [[2, true], [2, true], [closed.id, true]], result
    assert_equal [2, 2], [configured, used].map { |one| one.topic(name).partitions.size }
  end

  WAYS.each do |name, way|
    define_method("test_a_trap_that_forks_during_#{name}_raises_in_the_child_only") do
      one = frozen_admin
      reader, writer = IO.pipe
      before = Signal.trap("USR1") { fork and writer.close }
      parent = Process.pid
      thread = Thread.new do
        eventually { one.state == :open }
        sleep 0.05
        Process.kill(:USR1, parent)
      end
      begin
        way.call(one, timeout: 1)
      rescue Penstock::Error => e
        exit!(writer.write(e.class.name).zero?) if Process.pid != parent
        assert_kind_of Penstock::AdminTimeoutError, e
      end
      thread.join
      assert_equal "Penstock::ForkedError", reader.read
    ensure
      Signal.trap("USR1", before || "DEFAULT")
      Process.waitall if Process.pid == parent
    end
  end

  # ---- the log, rejections, tokens ----

  def test_log_lines_reach_the_logger_with_the_clients_id
    log = StringIO.new
    one = admin(servers: "127.0.0.1:1", log_level: 7) { |config| config.logger = Logger.new(log) }
    assert_raises(Penstock::AdminTimeoutError) { one.topics(timeout: 0.5) }
    eventually { log.string.include?("[#{one.id}] FAIL") }
  end

  def test_a_ractor_cannot_make_one
    error = quiet_ractor(cluster.bootstrap_servers) { |servers| Penstock::Admin.new("bootstrap.servers": servers) }
    assert_kind_of Penstock::NotShareableError, error
  end

  WAYS.each do |name, way|
    # defect 28
    define_method("test_#{name}_of_a_client_that_brokers_reject_raises_within_the_rejection_timeout") do
      one = admin(servers: port_that_hangs_up, "security.protocol": "ssl") { |config| config.rejection_timeout = 500 }
      elapsed = seconds_of { assert_raises(Penstock::BrokerRejectedError) { way.call(one, timeout: 60) } }
      assert_took(GCLevel.slow? ? 30 : 5, elapsed)
      again = seconds_of { assert_raises(Penstock::BrokerRejectedError) { way.call(one, timeout: 60) } }
      assert_operator again, :<, GCLevel.slow? ? 30 : 3
    end
  end

  def test_a_token_provider_is_asked_and_its_failure_is_raised
    asked = Queue.new
    provider = Object.new
    provider.define_singleton_method(:on_oauthbearer_token_refresh) do |event|
      asked << event
      event[:bearer].oauthbearer_set_token_failure("none today")
    end
    one = admin(servers: "127.0.0.1:1", "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
      config.oauth.token_provider_listener = provider
      config.rejection_timeout = 100
    end
    error = assert_raises(Penstock::AuthenticationError) { one.topics(timeout: 30) }
    assert_includes error.message, "none today"
    assert_equal [one.id, one.id], [error.admin_id, asked.pop[:admin_id]]
  end

  def test_inspect_shows_no_settings
    one = admin("sasl.password": "hunter2", "sasl.username": "me", "sasl.mechanism": "PLAIN",
                "security.protocol": "sasl_plaintext")
    assert_equal [:configured, one.id], [one.state, one.inspect[/ (\S+) configured>/, 1]]
    [one.inspect, one.config.inspect, one.to_json, one.config.to_json].each { |text| refute_includes text, "hunter2" }
    one.set_credentials("you", "hunter3")
  end

  # ---- memory ----

  thorough def test_calls_under_gc_stress
    name = topic(partitions: 2)
    one = admin
    other = unreachable_admin
    one.topics(name)
    GC.stress = true
    topics = one.topics(name)
    error = assert_raises(Penstock::AdminTimeoutError) { other.create_topic("test", timeout: 0.1) }
    GC.stress = false
    assert_equal [[0, 1], other.id], [topics[name].partitions.map(&:id), error.admin_id]
  ensure
    GC.stress = false
  end

  # Other threads run in the rest of the time.
  alone slow def test_describing_2000_partitions_takes_little_processor_time
    cluster = own_cluster(brokers: 1)
    names = Array.new(10) { |i| "many-#{i}".tap { |name| cluster.create_topic(name, partitions: 200) } }
    one = admin(servers: cluster.bootstrap_servers)
    one.topics(*names)
    used = Array.new(5) do
      before = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
      assert_equal 2_000, one.topics(*names).ok.sum { |_, topic| topic.partitions.size }
      Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - before
    end
    assert_operator used.min, :<, GCLevel.slow? ? 5 : 0.02, used.inspect
  end

  LOOPS = Integer(ENV.fetch("PENSTOCK_ADMIN_LOOPS", "600")) # PENSTOCK_ADMIN_LOOPS=10000 for the long form

  { "answered_requests" => ->(one) { one.create_topic("test", timeout: 0.001) },
    "questions" => lambda(&:topics),
    "abandoned_requests" => ->(one) { Timeout.timeout(0.002) { one.create_topic("test", timeout: 0.02) } } }.each do |what, call|
    define_method("test_#{what}_leak_nothing") do
      one = admin(servers: what == "questions" ? cluster.bootstrap_servers : "127.0.0.1:1")
      used = Array.new(4) do
        LOOPS.times do
          call.call(one)
        rescue Penstock::AdminTimeoutError, Timeout::Error
          nil
        end
        resident
      end
      # A leaked call, with librdkafka's event, is above 500 bytes.
      puts "#{what}: #{used}" if ENV.key?("PENSTOCK_ADMIN_LOOPS")
      assert_operator used.last - used[1], :<, (LOOPS * 2 * 200) + 2_000_000, used.inspect
    end
  end

  # ---- requests to the coordinator of a group ----

  # If such a request times out in librdkafka, 2.0.2 and 2.14.2 fail an assertion when the coordinator can be reached again.
  { "timed_out" => "one.alter_group_offsets('late', places, timeout: 0.3)",
    "was_interrupted" => "Timeout.timeout(0.3) { one.alter_group_offsets('late', places, timeout: 5) }" }.each do |what, call|
    define_method("test_a_request_to_a_coordinator_that_#{what}_is_forgotten_and_does_no_harm_when_the_coordinator_returns") do
      output = ruby!(<<~RUBY)
        require "timeout"
        cluster = Penstock::EmbeddedCluster.new(brokers: 1)
        cluster.create_topic("test", partitions: 1)
        places = { "test" => { 0 => 1 } }
        one = Penstock::Admin.new("bootstrap.servers": cluster.bootstrap_servers, log_level: 0, "reconnect.backoff.max.ms": 100)
        one.alter_group_offsets("first", places)
        cluster.broker_down(1)
        begin
          #{call}
        rescue Penstock::AdminTimeoutError, Timeout::Error
          puts "no answer", one.state
        end
        cluster.broker_up(1)
        one.alter_group_offsets("second", places)
        puts %w[first late second].map { |group| one.group_offsets({ group => places.transform_values(&:keys) })[group]["test"][0]&.offset.inspect }
        puts one.close, one.state
      RUBY
      assert_equal "no answer\nconfigured\n1\nnil\n1\ntrue\nclosed\n", output
    end
  end

  slow def test_a_client_that_forgets_a_request_leaves_the_calls_of_other_threads_alone
    cluster = own_cluster(brokers: 1)
    name = "test-#{rand(2**32)}"
    cluster.create_topic(name, partitions: 1)
    one = admin(servers: cluster.bootstrap_servers, "reconnect.backoff.max.ms": 100) { |config| config.unreachable_timeout = 0 }
    one.alter_group_offsets("first", { name => { 0 => 1 } })
    cluster.broker_down(1)
    other = Thread.new { one.topics(timeout: 60) }
    assert_raises(Penstock::AdminTimeoutError) { one.alter_group_offsets("late", { name => { 0 => 1 } }, timeout: 0.3) }
    assert_equal :open, one.state
    cluster.broker_up(1)
    assert_includes other.value.keys, name
    eventually { one.state == :configured }
    assert_includes one.topics.keys, name
  end

  def test_a_close_that_overtakes_the_replacement_closes_for_good
    cluster = own_cluster(brokers: 1)
    cluster.create_topic("test", partitions: 1)
    one = admin(servers: cluster.bootstrap_servers)
    one.alter_group_offsets("first", { "test" => { 0 => 1 } })
    cluster.broker_down(1)
    waits = Array.new(5) { quiet_thread { one.alter_group_offsets("late", { "test" => { 0 => 1 } }, timeout: 0.3) } }
    sleep 0.3
    assert one.close
    waits.each { |wait| assert_raises(Penstock::AdminClosedError, Penstock::AdminTimeoutError) { wait.value } }
    assert_equal :closed, one.state
    assert_raises(Penstock::AdminClosedError) { one.topics }
  end

  # librdkafka would use freed memory.
  def test_requests_that_the_embedded_cluster_does_not_know_raise
    one = admin(servers: own_cluster.bootstrap_servers)
    assert_raises(Penstock::UnsupportedError) { one.topics && one.create_topic("test") } # it has no controller
    [-> { one.delete_groups("none") }, -> { one.describe_groups("none") },
     -> { one.delete_group_offsets("none", { "test" => [0] }) }].each do |call|
      assert_match(/embedded cluster does not know/, assert_raises(Penstock::UnsupportedError, &call).message)
    end
  end

  # ---- interrupts ----

  ENDS = {
    "raise" => ->(thread) { thread.raise(Interrupted) },
    "kill" => lambda(&:kill),
    "timeout" => nil
  }.freeze

  WAYS.each do |name, way|
    ENDS.each do |kind, ending|
      define_method("test_#{kind}_ends_#{name}_at_once_and_the_client_stays_usable") do
        one = frozen_admin
        one.topics(timeout: 0.01)
      rescue Penstock::AdminTimeoutError
        elapsed = ending ? seconds_until_ended(one, way, ending) : seconds_of_timeout(one, way)
        assert_took(SOON, elapsed)
        assert_equal :open, one.state
        assert_raises(Penstock::AdminTimeoutError) { way.call(one, timeout: 0.05) }
      end
    end

    define_method("test_a_ctrl_c_ends_#{name}") do
      output = ruby!(<<~RUBY, frozen_broker, name)
        one = Penstock::Admin.new("bootstrap.servers": ARGV[0])
        main = Thread.current
        Thread.new do
          sleep 0.01 until one.state == :open && main.stop?
          sleep 0.1
          Process.kill(:INT, Process.pid)
        end
        begin
          ARGV[1] == "a_request" ? one.create_topic("test") : one.topics
        rescue Interrupt
          puts "interrupted", one.state, one.close
        end
      RUBY
      assert_equal "interrupted\nopen\ntrue\n", output
    end
  end

  def quiet_ractor(...)
    before = $VERBOSE
    $VERBOSE = nil # Ractors are experimental
    Thread.report_on_exception = false
    ractor = Ractor.new(...)
    assert_raises(Ractor::RemoteError) { ractor.respond_to?(:value) ? ractor.value : ractor.take }.cause
  ensure
    Thread.report_on_exception = true
    $VERBOSE = before
  end

  def seconds_until_ended(one, way, ending)
    thread = waiting(one, way)
    seconds_of do
      ending.call(thread)
      Slowness.join(thread, 10)
    rescue Interrupted
      nil
    end
  end

  def seconds_of_timeout(one, way)
    start = nil
    assert_raises(Timeout::Error) do
      Timeout.timeout(0.1) { (start = now) && way.call(one, timeout: 60) }
    end
    now - start - 0.1
  end

  # ---- fibers ----

  FiberSchedulers::KINDS.each do |kind|
    WAYS.each do |name, way|
      define_method("test_other_fibers_run_while_a_fiber_waits_for_#{name}_under_#{kind}") do
        one = frozen_admin
        error = with_scheduler(kind) do |fibers|
          strand = fibers.start { assert_raises(Penstock::AdminTimeoutError) { way.call(one, timeout: 0.5) } }
          turns = 0
          (turns += 1) && sleep(0.001) until strand.done?
          assert_operator turns, :>, 20
          strand.join
        end
        assert_equal one.id, error.admin_id
      end

      define_method("test_a_close_ends_#{name}_of_a_fiber_under_#{kind}") do
        one = frozen_admin
        with_scheduler(kind) do |fibers|
          strand = fibers.start { assert_raises(Penstock::AdminClosedError) { way.call(one, timeout: 60) } }
          10.times { sleep 0.01 }
          refute_predicate strand, :done?
          assert one.close
          strand.join
        end
      end
    end
  end

  WAYS.each do |name, way|
    define_method("test_a_dropped_fiber_that_waits_for_#{name}_delays_no_close_and_leaks_nothing") do
      one = frozen_admin
      assert_raises(Penstock::AdminTimeoutError) { one.topics(timeout: 0.01) }
      10.times { drop_a_waiting_fiber(one, way) }
      eventually { GC.start || calls_in_memory < 5 } # the stacks of the last fibers may still be in use
      assert_took(GCLevel.slow? ? 10 : 1.5, seconds_of { assert one.close })
    end
  end

  def calls_in_memory = ObjectSpace.count_tdata_objects.fetch(:"Penstock::Native::AdminClient/call", 0)

  def drop_a_waiting_fiber(one, way)
    scheduler = PlainScheduler.new
    def scheduler.close = nil
    Thread.new do
      Fiber.set_scheduler(scheduler)
      fiber = Fiber.new(blocking: false) { way.call(one, timeout: 60) }.tap(&:resume)
      assert scheduler.waiting?(fiber)
    end.join
  end
end
