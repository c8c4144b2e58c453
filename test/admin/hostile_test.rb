# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/admin_test_case"
require_relative "../support/hostile_broker"

# Brokers that answer an admin client with less than it asked for, with something else, or with strange names. All fields of all
# answers, one by one: proofs/hostile_broker_test.rb.
class AdminHostileTest < AdminTestCase
  TOPIC = HostileBroker::GoodAnswers::TOPIC
  OTHER = "other" # of which the honest broker knows nothing
  LACKS = /The answer of the brokers does not contain it/

  # The client of a broker whose answers have other values in some fields.
  # @param api [Symbol] the request
  # @param fields [Hash{String => String}] bytes by the name of the field
  def hostile_admin(api = nil, fields = {}, &block)
    broker = HostileBroker.new { |exchange| lie(exchange, fields) if exchange.api == api }
    @servers << broker
    admin(servers: broker.address, "allow.auto.create.topics": false, &block)
  end

  def lie(exchange, fields)
    exchange.answer.fields.each { |field| field.bytes = fields.fetch(field.name, field.bytes) }
    exchange.respond
  end

  def skip_without(method)
    supported = Internal::AdminClient.method_defined?(method)
    skip "librdkafka #{Penstock.librdkafka_version} has no such request" unless supported
  end

  # Makes these the only brokers of a cluster. The first is the coordinator.
  def one_cluster(*brokers)
    ports = brokers.each.with_index(1).to_h { |broker, id| [id, broker.port] }
    @servers |= brokers
    HostileBroker::Cluster.new(ports, 1).tap { |cluster| brokers.each { |broker| broker.cluster = cluster } }
  end

  def int32(number) = [number].pack("l>")
  def int64(number) = [number].pack("q>")
  def error(code) = [code].pack("s>")

  # ---- an answer that lacks something ----

  LACKING = {
    create_topics: [->(one) { one.create_topics({ OTHER => {}, TOPIC => {} }, wait: false) }, OTHER, TOPIC],
    delete_topics: [->(one) { one.delete_topics(OTHER, TOPIC, wait: false) }, OTHER, TOPIC],
    create_partitions: [->(one) { one.create_partitions({ OTHER => 2, TOPIC => 2 }) }, OTHER, TOPIC],
    configs: [->(one) { one.configs(topics: [OTHER, TOPIC]) }, [:topic, OTHER], [:topic, TOPIC]],
    delete_acls: [->(one) { one.delete_acls({ topic: TOPIC }, { topic: OTHER }) }, { topic: OTHER }, { topic: TOPIC }],
    delete_group_offsets: [->(one) { one.delete_group_offsets("g", { TOPIC => [0, 1] }) }, [TOPIC, 1], [TOPIC, 0]],
    alter_group_offsets:
      [->(one) { one.alter_group_offsets("g", { TOPIC => { 0 => 1, 1 => 1 } }) }, [TOPIC, 1], [TOPIC, 0]],
    reset_group_offsets: [->(one) { one.reset_group_offsets("g", to: 1, topics: { TOPIC => [0, 1] }) }, [TOPIC, 1], [TOPIC, 0]],
    group_offsets: [->(one) { one.group_offsets({ "f" => { TOPIC => [0, 1] }, "g" => { TOPIC => [0] } }) }, "f", "g"]
  }.freeze

  LACKING.each do |name, (call, missing, present)|
    define_method("test_what_the_answer_to_#{name}_lacks_is_an_error") do
      results = call.call(hostile_admin)
      refute_nil results[present]
      assert_match LACKS, assert_raises(Penstock::AdminError) { results[missing] }.message
      assert_equal 2, results.size
    end
  end

  def test_a_topic_that_a_description_lacks_is_an_error
    results = hostile_admin.topics(OTHER, TOPIC)
    assert_equal TOPIC, results[TOPIC].name
    assert_raises(Penstock::AdminError) { results[OTHER] }
  end

  def test_an_election_and_users_that_an_answer_lacks_are_errors
    skip_without :elect_leaders
    one = hostile_admin
    elected = one.elect_leaders(:preferred, { TOPIC => [0, 1] })
    assert_match LACKS, assert_raises(Penstock::AdminError) { elected[TOPIC, 1] }.message
    [one.scram_users(TOPIC, OTHER), one.alter_scram_users(delete: { TOPIC => :"SCRAM-SHA-256", OTHER => :"SCRAM-SHA-256" })]
      .each { |users| assert_match LACKS, assert_raises(Penstock::AdminError) { users[OTHER] }.message }
  end

  # ---- an answer about something else ----

  def test_partitions_that_nobody_asked_for_are_no_answers
    other = { "topics.partitions.number" => int32(7) }
    {
      offset_fetch: ->(one) { one.group_offsets({ TOPIC => { TOPIC => [0] } })[TOPIC] },
      list_offsets: ->(one) { one.offsets({ TOPIC => { 0 => :end } })[TOPIC, 0] },
      offset_delete: ->(one) { one.delete_group_offsets(TOPIC, { TOPIC => [0] })[TOPIC, 0] }
    }.each { |api, call| assert_raises(Penstock::AdminError, api.name) { call.call(hostile_admin(api, other)) } }
    reset = hostile_admin(:offset_fetch, other).reset_group_offsets(TOPIC, to: 1, topics: { TOPIC => [0] })
    assert_equal [[TOPIC, 0]], reset.keys
  end

  # The positions are known to the honest broker. The answer to the change lacks each partition, or has another.
  def test_a_reset_of_a_partition_that_the_answer_lacks_is_an_error
    { "topics.partitions.number" => int32(7), "topics" => int32(0), "topics.name" => HostileBroker::Answer.string(OTHER) }
      .each do |field, bytes|
        broker = HostileBroker.new do |exchange|
          next unless exchange.api == :offset_commit
          next lie(exchange, { field => bytes }) unless field == "topics"

          exchange.respond(exchange.answer.fields.first.bytes + bytes)
        end
        @servers << broker
        reset = admin(servers: broker.address).reset_group_offsets("g", to: 1, topics: { TOPIC => [0] })
        assert_match LACKS, assert_raises(Penstock::AdminError, field) { reset[TOPIC, 0] }.message
      end
  end

  # librdkafka before 2.3.0 leaves the time where the offset should be.
  def test_a_time_is_no_offset
    one = hostile_admin(:list_offsets, { "topics.partitions.number" => int32(7) })
    assert_raises(Penstock::AdminError) { one.offsets({ TOPIC => { 0 => Time.at(1_700_000_000) } })[TOPIC, 0] }
  end

  def test_no_offset_is_an_error_where_there_must_be_one
    one = hostile_admin(:delete_records, { "topics.partitions.low_watermark" => int64(-1) })
    assert_match LACKS, assert_raises(Penstock::AdminError) { one.delete_records({ TOPIC => { 0 => 1 } })[TOPIC, 0] }.message
    one = hostile_admin(:list_offsets, { "topics.partitions.offset" => int64(-1) })
    assert_raises(Penstock::AdminError) { one.offsets({ TOPIC => { 0 => :end } })[TOPIC, 0] }
  end

  # The beginning and the end are asked for at once, and messages may be deleted in between.
  def test_a_reset_of_a_partition_that_begins_behind_its_end_is_to_its_beginning
    broker = HostileBroker.new do |exchange|
      next unless exchange.api == :list_offsets

      beginning = exchange.request.body.end_with?(int64(-2))
      lie(exchange, { "topics.partitions.offset" => int64(beginning ? 20 : 10) })
    end
    @servers << broker
    reset = admin(servers: broker.address).reset_group_offsets(TOPIC, to: 5, topics: { TOPIC => [0] }, dry_run: true)
    assert_equal 20, reset[TOPIC, 0].after
  end

  # ---- errors ----

  # -1 is the brokers' UNKNOWN_SERVER_ERROR. librdkafka keeps the text of this error on a stack.
  def test_an_unknown_error_of_a_request_for_users_does_not_end_the_process
    skip_without :describe_scram_users
    assert_equal "unknown\n", ruby!(<<~RUBY, hostile_server(:describe_scram_users, { "error" => error(-1) }))
      one = Penstock::Admin.new("bootstrap.servers": ARGV[0])
      puts (one.scram_users rescue $!.code)
      one.close
    RUBY
  end

  # Bytes of the error's code follow the name, if the code is not below 256.
  def test_a_user_with_an_unknown_error_has_its_name
    skip_without :describe_scram_users
    one = hostile_admin(:describe_scram_users, { "users.error" => error(-1) })
    assert_equal :unknown, assert_raises(Penstock::AdminError) { one.scram_users(TOPIC)[TOPIC] }.code
    one = hostile_admin(:alter_scram_users, { "users.error" => error(-1) })
    change = { TOPIC => :"SCRAM-SHA-256" }
    assert_equal :unknown, assert_raises(Penstock::AdminError) { one.alter_scram_users(delete: change)[TOPIC] }.code
  end

  def hostile_server(api, fields)
    broker = HostileBroker.new { |exchange| lie(exchange, fields) if exchange.api == api }
    @servers << broker
    broker.address
  end

  # ---- groups ----

  # A group whose id has control characters: Kafka takes any text. Programs send the ids that they get back.
  def test_ids_of_groups_are_not_escaped
    id = "a\n\e[31mb"
    one = hostile_admin(:list_groups, { "groups.id" => HostileBroker::Answer.string(id, flexible: true) })
    assert_equal [id], one.groups.ids
    name = { "groups.id" => HostileBroker::Answer.string(id) }
    assert_equal id, hostile_admin(:describe_groups, name).group(id).id
    assert_equal true, hostile_admin(:delete_groups, name).delete_groups(id)[id]
  end

  def test_a_name_may_be_of_binary_encoding
    id = "caf\u00e9"
    name = { "groups.id" => HostileBroker::Answer.string(id) }
    assert_equal id, hostile_admin(:describe_groups, name).group(id.b).id
    assert_equal true, hostile_admin(:delete_groups, name).delete_groups(id.b)[id]
  end

  # The request, the field that contains an error, and a call that gets it.
  GROUP = HostileBroker::GoodAnswers::GROUP
  PLACES = { TOPIC => { 0 => 1 } }.freeze
  FAILING = {
    describe_groups: [:describe_groups, "groups.error", ->(one) { one.describe_groups(GROUP)[GROUP] }],
    group: [:describe_groups, "groups.error", ->(one) { one.group(GROUP) }],
    delete_groups: [:delete_groups, "groups.error", ->(one) { one.delete_groups(GROUP)[GROUP] }],
    group_offsets: [:offset_fetch, "error", ->(one) { one.group_offsets({ GROUP => nil })[GROUP] }],
    group_offsets_of_a_partition:
      [:offset_fetch, "topics.partitions.error", ->(one) { one.group_offsets({ GROUP => nil })[GROUP] }, 0],
    lag: [:offset_fetch, "error", ->(one) { one.lag(GROUP)[GROUP] }],
    alter_group_offsets:
      [:offset_commit, "topics.partitions.error", ->(one) { one.alter_group_offsets(GROUP, PLACES)[TOPIC, 0] }, 0],
    reset_group_offsets:
      [:offset_commit, "topics.partitions.error", ->(one) { one.reset_group_offsets(GROUP, to: 1, topics: [TOPIC]).raise! }, 0],
    delete_group_offsets: [:offset_delete, "error", ->(one) { one.delete_group_offsets(GROUP, { TOPIC => [0] }) }],
    delete_group_offsets_of_a_partition:
      [:offset_delete, "topics.partitions.error", ->(one) { one.delete_group_offsets(GROUP, { TOPIC => [0] })[TOPIC, 0] }, 0]
  }.freeze

  FAILING.each do |name, (api, field, call, partition)|
    define_method("test_an_error_of_#{name}_names_the_group") do
      assert_names GROUP, partition, hostile_admin(api, { field => error(30) }), call
    end
  end

  def assert_names(group, partition, one, call)
    failed = assert_raises(Penstock::AdminError) { call.call(one) }
    assert_equal [group, (TOPIC if partition), partition], [failed.group, failed.topic, failed.partition]
    assert_includes failed.message, "[admin #{one.id}, group #{group}#{", topic #{TOPIC}, partition 0" if partition}]"
    assert_predicate failed.group, :frozen?
  end

  def test_the_error_of_a_partition_that_an_answer_lacks_names_the_group
    assert_equal OTHER, hostile_admin.group_offsets({ OTHER => { TOPIC => [0, 1] } }).errors[OTHER].group
    assert_equal OTHER, hostile_admin.delete_group_offsets(OTHER, { TOPIC => [1] }).errors[TOPIC][1].group
    assert_equal OTHER, hostile_admin.alter_group_offsets(OTHER, { TOPIC => { 1 => 1 } }).errors[TOPIC][1].group
  end

  thorough def test_the_error_of_a_request_that_gets_no_answer_names_the_group
    %i[describe_groups offset_fetch offset_commit offset_delete].zip(
      [->(one) { one.group(OTHER, timeout: 1) }, ->(one) { one.group_offsets({ OTHER => nil }, timeout: 1)[OTHER] },
       ->(one) { one.alter_group_offsets(OTHER, PLACES, timeout: 1) },
       ->(one) { one.delete_group_offsets(OTHER, { TOPIC => [0] }, timeout: 1) }]
    ) do |api, call|
      @servers << (broker = HostileBroker.new { |exchange| exchange.ignore if exchange.api == api })
      one = admin(servers: broker.address)
      failed = assert_raises(Penstock::AdminTimeoutError) { call.call(one) }
      assert_equal [OTHER, true], [failed.group, failed.message.include?("group #{OTHER}")], api
    end
  end

  # Of a group that does not exist, Kafka's description is a dead one.
  def test_the_error_of_a_group_that_does_not_exist_names_the_group
    dead = { "groups.state" => HostileBroker::Answer.string("Dead") }
    none = { "groups.id" => HostileBroker::Answer.string("another", flexible: true) }
    broker = HostileBroker.new { |exchange| lie(exchange, { describe_groups: dead, list_groups: none }.fetch(exchange.api, {})) }
    @servers << broker
    one = admin(servers: broker.address)
    assert_names GROUP, nil, one, ->(it) { it.group(GROUP) }
    failed = assert_raises(Penstock::AdminError) { one.group(GROUP) }
    assert_equal :group_id_not_found, failed.code
  end

  # The requests about the offsets of a group, and calls that make them.
  OFFSET_CALLS = {
    offset_fetch: ->(one) { one.group_offsets({ GROUP => nil }).raise! },
    offset_commit: ->(one) { one.alter_group_offsets(GROUP, PLACES).raise! },
    offset_delete: ->(one) { one.delete_group_offsets(GROUP, { TOPIC => [0] }).raise! }
  }.freeze
  LOADING = 14
  NOT_COORDINATOR = 16

  # Of some requests, the whole answer has the error, or each partition.
  OFFSET_CALLS.each do |api, call|
    define_method("test_a_call_repeats_#{api}_until_the_coordinator_has_loaded_the_group") do
      broker = HostileBroker.new do |exchange|
        next unless exchange.api == api && exchange.request.count <= 2

        lie(exchange, { "error" => error(LOADING), "topics.partitions.error" => error(LOADING) })
      end
      @servers << broker
      assert_predicate call.call(admin(servers: broker.address)), :ok?
      assert_equal 3, broker.counts[api]
    end

    # A change that got no answer may have taken effect. A question has not, so the error that it got before says more.
    expected = api == :offset_fetch ? :coordinator_load_in_progress : :timed_out
    define_method("test_a_call_whose_repeated_#{api}_gets_no_answer_reports_#{expected}") do
      broker = HostileBroker.new do |exchange|
        next unless exchange.api == api
        next exchange.ignore if exchange.request.count > 1

        lie(exchange, { "error" => error(LOADING), "topics.partitions.error" => error(LOADING) })
      end
      @servers << broker
      one = admin(servers: broker.address) { |config| config.timeout = 1000 }
      assert_equal expected, assert_raises(Penstock::AdminError) { call.call(one) }.code
      assert_equal 2, broker.counts[api]
    end

    # librdkafka never asks anew who the coordinator is, as long as it can reach the former one.
    define_method("test_a_call_finds_the_new_coordinator_when_the_former_one_rejects_#{api}") do
      cluster = nil
      other = HostileBroker.new
      broker = HostileBroker.new do |exchange|
        next unless exchange.api == api

        cluster.coordinator = 2
        lie(exchange, { "error" => error(NOT_COORDINATOR), "topics.partitions.error" => error(NOT_COORDINATOR) })
      end
      cluster = one_cluster(broker, other)
      assert_predicate call.call(admin(servers: broker.address)), :ok?
      assert_equal [1, 1], [broker, other].map { |it| it.counts[api] }
    end
  end

  # One client serves the offsets of all groups, until the group that it began with turns out to be forbidden.
  def test_a_forbidden_group_does_not_end_calls_for_other_groups
    denied = Queue.new
    waits = Queue.new
    go = Queue.new
    broker = HostileBroker.new do |exchange|
      next unless exchange.api == :offset_fetch
      next lie(exchange, { "error" => error(30) }) if exchange.request.body.include?("denied")

      waits << true
      go.pop
    end
    @servers << broker
    one = admin(servers: broker.address)
    caller = quiet_thread { one.group_offsets({ "allowed" => nil })["allowed"] }
    waits.pop
    go << true
    forbidder = quiet_thread { denied << one.group_offsets({ "denied" => nil })["denied"] }
    assert_raises(Penstock::AdminError) { forbidder.value }
    go << true << true
    assert_equal [TOPIC], caller.value.keys
  end

  # ---- fork ----

  # A thread that reads an answer may let other threads run. A child has neither that thread nor its stack.
  def test_a_child_forked_while_threads_read_answers_can_close_the_client
    assert_equal "done\n", ruby!(<<~'RUBY', frozen_broker)
      inside, go = Queue.new, Queue.new
      Penstock::AdminTimeoutError.define_singleton_method(:new) do |*given, **more|
        inside << true
        go.pop
        super(*given, **more)
      end
      one = Penstock::Admin.new("bootstrap.servers": ARGV[0])
      readers = Array.new(4) { Thread.new { one.create_topic("test", timeout: 0.5) rescue nil } }
      readers.each { inside.pop }
      10.times do
        child = fork do
          Array.new(16) { Thread.new { [1, 2, 3].map(&:to_s).join.hash } }.each(&:join) # where the readers' stacks were
          one.close(timeout: 1)
          exit!(0)
        end
        Process.wait(child)
        puts $? unless $?.success?
      end
      go.close
      readers.each(&:join)
      one.close
      puts "done"
    RUBY
  end
end
