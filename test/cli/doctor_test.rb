# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/advertising_broker"
require "penstock/doctor"

class DoctorTest < PenstockTest
  Doctor = Penstock::Doctor

  def setup
    super
    @closing = []
    @killing = []
  end

  def teardown
    @killing.each { |thread| thread.kill.join }
    @closing.each(&:close)
    super
  end

  # The facts about the cluster, without those about the machine's limits and its Gemfile.
  def cluster_facts(*servers, timeout: 10, **settings)
    addresses = servers.map { |server| Doctor::Address.parse(server) }
    Doctor::Cluster.new(addresses, settings, timeout:).facts
  end

  def fact(facts, name) = facts.find { |one| one.name == name } || flunk("no #{name} in #{facts.map(&:name)}")

  def assert_ok(facts, name, pattern) = assert_fact(:ok, facts, name, pattern)
  def assert_note(facts, name, pattern) = assert_fact(:note, facts, name, pattern)

  def assert_problem(facts, name, pattern, advice)
    assert_fact(:problem, facts, name, pattern)
    assert_match advice, fact(facts, name).advice
  end

  def assert_fact(status, facts, name, pattern)
    found = fact(facts, name)
    assert_equal status, found.status, found.to_s
    assert_match pattern, found.value
  end

  # ---- the machine ----

  def machine(lines = [], **options) = Doctor::Machine.new(Doctor::SharedObjects.new(lines), **options).facts

  def map_line(path) = "7f0000000000-7f0000001000 r-xp 00000000 fe:00 1234                       #{path}"

  def test_the_report_names_the_versions_of_ruby_and_the_c_library
    facts = machine
    assert_ok facts, "ruby", /\ACRuby #{Regexp.escape(RUBY_VERSION)}p\d+, #{Regexp.escape(RUBY_PLATFORM)}\z/
    assert_ok facts, "libc", /\A(glibc|musl) \d/ if RUBY_PLATFORM.include?("linux")
  end

  def test_the_allocator_is_found_in_the_process_map
    assert_ok machine, "allocator", /\Amalloc of /
    assert_ok machine([map_line("/usr/lib/libjemalloc.so.2")]), "allocator", /\Ajemalloc\z/
    assert_ok machine([map_line("/usr/lib/libtcmalloc_minimal.so.4 (deleted)")]), "allocator", /\Atcmalloc\z/
  end

  def test_too_few_open_files_are_a_problem
    assert_ok machine(open_files: [65_536, 65_536]), "open files", /\A65536 at most.*3 for each broker/
    assert_ok machine(open_files: [Process::RLIM_INFINITY] * 2), "open files", /\Ano limit/
    assert_problem machine(open_files: [64, 4_096]), "open files", /\A64 at most/, /ulimit -n.*4096/
  end

  def test_too_few_threads_are_a_problem_under_any_kind_of_limit
    assert_ok machine(threads: []), "threads", /no limit/
    limits = [[10_000, nil, "of the user"], [200, 150, "of the control group"]]
    assert_problem machine(threads: limits), "threads", /\A200 at most \(of the control group\), 150 in use/, /pids/
    assert_ok machine(threads: limits.first(1)), "threads", /\A10000 at most \(of the user\); .*1 for each broker/
  end

  def clocks(*readings, **options)
    clock = Doctor::Clock.new(read: -> { readings.shift }, **options)
    clock.facts
  end

  def test_a_wall_clock_that_jumps_is_a_problem
    assert_ok clocks([1.0, 1_000.0], [3.0, 1_002.001], source: "tsc"), "wall clock", /no jump over the 2\.0 s.*cannot be seen/
    assert_problem clocks([1.0, 1_000.0], [3.0, 1_001.5], source: "tsc"), "wall clock", /-500 ms, over the 2\.0 s/, /NTP/
    assert_ok Doctor::Clock.new.facts, "wall clock", /no jump/
  end

  def test_a_clock_that_is_slow_to_read_is_noted
    assert_note clocks([1, 1], [1, 1], source: "hpet"), "monotonic clock", /hpet.*asks the kernel/
    assert_ok clocks([1, 1], [1, 1], source: "tsc"), "monotonic clock", /\Atsc, resolution \d+ ns\z/
  end

  # ---- librdkafka ----

  def library(**options) = Doctor::Library.new(Doctor::SharedObjects.of_process, **options).facts

  def test_the_report_names_both_versions_of_librdkafka_its_file_and_its_features
    facts = library
    assert_ok facts, "librdkafka", /\A#{Regexp.escape(Penstock.librdkafka_version)}, .*compiled against \d+\.\d+\.\d+\z/
    assert_ok facts, "features", /\bssl\b/
    assert_match(/PLAIN, SCRAM-SHA-256, SCRAM-SHA-512/, fact(facts, "sasl").value)
    assert_ok facts, "tls", /libssl|yes/
    assert_ok facts, "compression", /zstd/
  end

  def test_a_librdkafka_older_than_the_one_compiled_against_is_a_problem
    assert_ok library(linked: "2.10.0", compiled: "2.9.1"), "librdkafka", /compiled against 2\.9\.1/
    assert_problem library(linked: "2.9.1", compiled: "2.10.0"), "librdkafka", /older/, /Compile Penstock again/
  end

  def test_missing_features_of_librdkafka_are_noted
    facts = library(features: %w[gzip sasl_plain])
    assert_note facts, "tls", /without/
    assert_ok facts, "sasl", /\APLAIN\z/
    assert_note facts, "compression", /none gzip; built without snappy lz4 zstd/
    assert_note library(features: %w[gzip]), "sasl", /without/
    assert_note library(linked: "2.6.0", compiled: "2.0.2"), "sasl", /reject SCRAM/
    assert_ok library(linked: "2.6.1", compiled: "2.0.2"), "sasl", /SCRAM/
    assert_note library(linked: "2.2.0", compiled: "2.0.2"), "assignors", /older than 2\.3\.0 .* waits for its assignment/
    assert_ok library(linked: "2.3.0", compiled: "2.0.2"), "assignors", /cooperative-sticky\z/
  end

  # ---- conflicting libraries ----

  def libraries(loaded: {}, lock: nil, file: "Gemfile.lock", lines: [])
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, file), lock) if lock
      with_environment("BUNDLE_GEMFILE" => nil) do
        return Doctor::ConflictingLibraries.new(Doctor::SharedObjects.new(lines), directory:, loaded:).facts
      end
    end
  end

  def with_environment(values)
    before = values.to_h { |name, _| [name, ENV.fetch(name, nil)] }
    ENV.update(values)
    yield
  ensure
    ENV.update(before)
  end

  LOCK = <<~TEXT
    GEM
      remote: https://gems.example/
      specs:
        ethon (0.16.0)
          ffi (>= 1.15.0)
        %s

    DEPENDENCIES
      ethon
  TEXT

  def test_an_old_ffi_in_the_process_or_the_bundle_is_a_problem
    old = /1\.16\.3, in Gemfile\.lock: versions below 1\.17.*undefined method 'default' for String/
    assert_problem libraries(lock: format(LOCK, "ffi (1.16.3-x86_64-linux-gnu)")), "ffi", old, /bundle update ffi/
    assert_problem libraries(lock: format(LOCK, "ffi (1.15.5)"), file: "gems.locked"), "ffi", /1\.15\.5, in gems\./, /update/
    assert_problem libraries(loaded: { "ffi" => "1.9.25" }), "ffi", /1\.9\.25, in this process/, /update/
    assert_ok libraries(lock: format(LOCK, "ffi (1.17.0.rc1-java)"), loaded: { "ffi" => "1.17.0.rc1" }), "ffi",
              /\A1\.17\.0\.rc1, in this process and in Gemfile\.lock\z/
    assert_ok libraries(lock: format(LOCK, "rake (13.0)")), "ffi", /neither/
    assert_ok libraries, "ffi", /neither/
  end

  def test_gems_that_bundle_librdkafka_or_zstd_are_reported
    %w[rdkafka karafka-rdkafka].each do |name|
      assert_problem libraries(lock: format(LOCK, "#{name} (0.16.0)")), name, /0\.16\.0.*of its own/, /Gemfile/
    end
    assert_note libraries(loaded: { "zstd-ruby" => "1.5.6" }), "zstd-ruby", /of its own/
  end

  # Yields a shared object that exports a function and one that only imports it.
  def with_objects
    Dir.mktmpdir do |directory|
      sources = { "second" => "int rd_kafka_new(void) { return 0; } int ZSTD_decompress(void) { return 0; }",
                  "wants" => "int rd_kafka_new(void); int wants(void) { return rd_kafka_new(); }" }
      yield(sources.to_h do |name, source|
        path = File.join(directory, "#{name}.so")
        File.write("#{path}.c", source)
        assert system("cc", "-shared", "-fPIC", "-o", path, "#{path}.c"), "cc"
        [name, File.realpath(path)]
      end)
    end
  end

  def test_a_second_librdkafka_or_zstd_in_the_process_is_a_problem_under_any_name
    with_objects do |paths|
      rows = JSON.parse(ruby!(<<~RUBY, *paths.values))
        require "json"
        require "fiddle"
        require "penstock/doctor"
        ARGV.each { |path| Fiddle::Handle.new(path, Fiddle::RTLD_LAZY) }
        objects = Penstock::Doctor::SharedObjects.of_process
        puts Penstock::Doctor::ConflictingLibraries.new(objects, directory: "/").facts.map(&:to_a).to_json
      RUBY
      facts = rows.map { |name, status, value, advice| Doctor::Fact.new(name, status.to_sym, value, advice) }
      assert_problem facts, "librdkafka loaded", /\A2 times: .*librdkafka.*second\.so|second\.so.*librdkafka/, /Load one only/
      assert_problem facts, "zstd loaded", /\A2 times: .*second\.so/, /libzstd/
      refute_match(/wants\.so/, facts.map(&:value).join)
    end
  end

  def test_this_process_has_one_librdkafka_and_one_zstd
    facts = Doctor::ConflictingLibraries.new(Doctor::SharedObjects.of_process, directory: "/", loaded: {}).facts
    assert_ok facts, "librdkafka loaded", /\Aonce: .*librdkafka/
    refute_equal :problem, fact(facts, "zstd loaded").status
  end

  def test_a_file_that_is_missing_truncated_or_not_elf_defines_no_functions
    Dir.mktmpdir do |directory|
      librdkafka = Doctor::SharedObjects.of_process.named(/\Alibrdkafka/).first
      contents = { "empty" => "", "text" => "rd_kafka_new\0" * 10, "cut" => File.binread(librdkafka, 5_000) }
      contents.each do |name, content|
        path = File.join(directory, name)
        File.binwrite(path, content)
        refute Doctor::SharedObjects::Elf.new(path).defines?("rd_kafka_new"), name
      end
      refute Doctor::SharedObjects::Elf.new("/nowhere/at.so").defines?("rd_kafka_new")
      assert Doctor::SharedObjects::Elf.new(librdkafka).defines?("rd_kafka_new")
    end
  end

  # ---- a cluster ----

  UNRESOLVED = /cannot be resolved|not resolved within/ # the latter if no name server answers

  slow def test_every_step_to_every_broker_is_reported
    own = own_cluster(brokers: 3)
    first, *others = own.bootstrap_servers.split(",")
    facts = cluster_facts(first)
    assert_empty facts.select(&:problem?).map(&:to_s)
    assert_ok facts, "#{first} name", /\A127\.0\.0\.1 is 127\.0\.0\.1/
    assert_ok facts, "#{first} tcp", /\Aconnected to 127\.0\.0\.1 port \d+ in [\d.]+ ms\z/
    assert_ok facts, "#{first} kafka", /\Acluster \S+, 3 brokers, controller -?\d+, answered in/
    assert_ok facts, "#{first} apis", /\A\d+: Produce 0-\d+, Fetch 0-\d+, Metadata/
    assert_ok facts, "broker 1", /advertises #{first}, as given/
    others.each_with_index { |other, i| assert_ok facts, "broker #{i + 2}", /\Aadvertises #{other}\z/ }
    assert_ok facts, "broker 3 kafka", /3 brokers/
  end

  def test_an_unresolvable_name_is_a_problem_and_ends_the_steps
    facts = cluster_facts("no-such-host.invalid:9092")
    assert_problem facts, "no-such-host.invalid:9092 name", UNRESOLVED, %r{DNS or /etc/hosts on this}
    assert_equal 1, facts.size
  end

  def test_a_closed_port_is_a_problem_and_the_other_servers_are_still_examined
    server = TCPServer.new("127.0.0.1", 0)
    closed = "127.0.0.1:#{server.addr[1]}"
    server.close
    facts = cluster_facts(closed, embedded_cluster.bootstrap_servers.split(",").first)
    assert_problem facts, "#{closed} tcp", /refused/i, /a broker listens/
    assert(facts.any? { |one| one.name.end_with?("kafka") && one.status == :ok })
    refute(facts.any? { |one| one.name == "#{closed} kafka" })
  end

  # A server that calls the block with each connection.
  def listening(&block)
    server = TCPServer.new("127.0.0.1", 0).tap { |made| @closing << made }
    quiet_thread { loop { block.call(server.accept) } }.tap { |thread| @killing << thread }
    "127.0.0.1:#{server.addr[1]}"
  end

  def test_a_port_that_closes_the_connection_is_a_problem_of_the_protocol
    address = listening(&:close)
    facts = cluster_facts(address)
    assert_ok facts, "#{address} tcp", /connected/
    assert_problem facts, "#{address} kafka", /reject this client|no answer/, /security\.protocol/
  end

  def test_a_silent_port_is_a_problem_at_the_timeout
    silent = []
    address = listening { |socket| silent << socket }
    facts = cluster_facts(address, timeout: 0.5)
    assert_problem facts, "#{address} kafka", /no answer from Kafka within 0\.5 s/, /plaintext/
  ensure
    silent.each(&:close)
  end

  def test_tls_on_a_port_without_tls_is_a_problem
    address = listening do |socket|
      socket.write("HTTP/1.1 400 Bad Request\r\n\r\n") if socket.wait_readable && !socket.eof?
      socket.close
    end
    last = cluster_facts(address, "security.protocol": "ssl").last
    assert_includes ["#{address} tls", "#{address} kafka"], last.name # the step depends on the version of librdkafka
    assert_problem [last], last.name, /reject this client/, /another protocol, without TLS|The port may/
  end

  # ---- the query for brokers ----

  def test_a_client_learns_the_advertised_brokers
    own = own_cluster(brokers: 2)
    one = native_client(producer(servers: own.bootstrap_servers))
    GC.stress = true
    cluster_id, controller, brokers = one.brokers(10_000)
    GC.stress = false
    assert_match(/\S/, cluster_id)
    assert_kind_of Integer, controller
    assert_equal(own.bootstrap_servers.split(","), brokers.sort.map { |_, host, port| "#{host}:#{port}" })
    assert_equal [1, 2], brokers.map(&:first).sort
  ensure
    GC.stress = false
  end

  thorough slow def test_a_query_for_brokers_times_out_can_be_interrupted_and_raises_on_a_closed_client
    one = native_client(unreachable_producer)
    assert_raises(Penstock::Error) { one.brokers(100) }
    thread = quiet_thread { one.brokers(5_000) }
    eventually { thread.status == "sleep" }
    thread.raise(Interrupt)
    assert_raises(Interrupt) { thread.value }
    one.close(0)
    assert_raises(Penstock::ProducerClosedError) { one.brokers(100) }
  end

  # ---- what brokers advertise ----

  def advertising(**options, &block) = AdvertisingBroker.new(**options, &block).tap { |broker| @closing << broker }

  def test_an_unresolvable_advertised_name_is_a_problem_of_the_broker
    broker = advertising { |own| [own, [7, "kafka-in-a-container.invalid", 9092]] }
    facts = cluster_facts(broker.address)
    assert_ok facts, "#{broker.address} kafka", /cluster advertised, 2 brokers, controller 1/
    assert_ok facts, "broker 7", /advertises kafka-in-a-container\.invalid:9092/
    assert_problem facts, "broker 7 name", UNRESOLVED, /Broker 7 tells its clients.*advertised\.listeners/
    assert_equal 1, facts.count(&:problem?)
  end

  def test_an_advertised_port_without_a_listener_is_a_problem
    broker = advertising { |own| [own, [2, "127.0.0.1", 1]] }
    assert_problem cluster_facts(broker.address), "broker 2 tcp", /refused/i, /listens/
  end

  def test_an_advertised_address_of_another_cluster_is_a_problem
    other = advertising(cluster_id: "other")
    broker = advertising { |own| [own, [2, "127.0.0.1", other.address.split(":").last.to_i]] }
    assert_problem cluster_facts(broker.address), "broker 2 kafka", /to the cluster other, not to advertised/, /advertise/
  end

  def test_an_answer_from_another_broker_is_requested_again
    address = Penstock::Doctor::Address.parse(advertising.address)
    looking = Penstock::Doctor::Cluster.new([address], {}, timeout: 5)
    astray = [Penstock::Doctor::Cluster::Answer.new("other", 1, [[1, "127.0.0.1", 9]], {}, 1.0)]
    looking.define_singleton_method(:ask) { |given| astray.shift || super(given) }
    facts = looking.facts
    assert_ok facts, "#{address} kafka", /cluster advertised, 1 broker,/
    assert_ok facts, "broker 1", /as given/
  end

  # librdkafka lets go of the bootstrap server when it knows other brokers, even if it cannot reach them.
  def test_an_answer_counts_when_the_repeated_request_fails
    broker = advertising { [[1, "127.0.0.1", 9]] }
    [Penstock::BrokersUnreachableError, Penstock::BrokerRejectedError].each do |error|
      looking = Penstock::Doctor::Cluster.new([Penstock::Doctor::Address.parse(broker.address)], {}, timeout: 5)
      asked = 0
      looking.define_singleton_method(:ask) { |given| (asked += 1) == 1 ? super(given) : raise(error, "none") }
      assert_ok looking.facts, "#{broker.address} kafka", /cluster advertised, 1 broker,/
    end
  end

  # The test reaches the bootstrap server by an address of this machine that is not loopback. The server advertises "localhost".
  def test_localhost_advertised_by_a_remote_broker_is_a_problem_even_if_a_server_listens_there
    here = advertising { [[1, "127.0.0.1", 9]] }
    examined = Doctor::Cluster.new([Doctor::Address.parse(here.address)], {}, timeout: 5)
    examined.define_singleton_method(:loopback?) { |info| info.ip_port != here.address.split(":").last.to_i }
    assert_problem examined.facts, "broker 1 address", /advertises 127\.0\.0\.1:9, which is this machine/, /advertised\.listeners/
  end

  # ---- hostile clusters ----

  HOSTILE = "no \xFF \e[2J\nPROBLEM forged \u202E"

  # Checks the printed report and the JSON.
  def assert_harmless(facts)
    report = Doctor::Report.new(facts)
    [*report.to_s.lines(chomp: true), *JSON.parse(JSON.generate(report.to_h)).fetch("facts").flat_map(&:values)].each do |text|
      assert_predicate text, :valid_encoding?
      refute_match(/[[:cntrl:]\u202E]/, text)
    end
    refute_match(/^PROBLEM forged/, report.to_s)
  end

  def test_terminal_control_characters_in_hosts_and_the_cluster_id_are_escaped
    broker = advertising(cluster_id: HOSTILE) { |own| [own, [7, HOSTILE, 9092]] }
    facts = cluster_facts(broker.address, timeout: 2)
    assert_harmless facts
    assert_ok facts, "#{broker.address} kafka", /cluster no \uFFFD \\x1B\[2J\\nPROBLEM forged \\u202E, 2 brokers/
    assert_problem facts, "broker 7 name", /forged/, /advertised\.listeners/
  end

  def test_a_brokers_login_error_is_escaped
    broker = advertising(sasl_error: HOSTILE)
    facts = cluster_facts(broker.address, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u",
                                          "sasl.password": SECRET)
    assert_harmless facts
    assert_problem facts, "#{broker.address} sasl", /SASL authentication error: no .*\\nPROBLEM forged/, /sasl\.password/
  end

  # The facts about the brokers that this broker advertises. Calls the method directly, because librdkafka 2.14 may query one of
  # the silent brokers instead.
  def advertised_facts(brokers, timeout:)
    cluster = Doctor::Cluster.new([], {}, timeout:)
    cluster.instance_variable_set(:@local, true)
    cluster.send(:advertised, [Struct.new(:brokers).new(brokers)])
    cluster.instance_variable_get(:@facts)
  end

  slow def test_silent_brokers_are_queried_in_parallel_and_omitted_brokers_are_noted
    silent = []
    host, port = listening { |socket| silent << socket }.split(":")
    facts = nil
    took = seconds_of { facts = advertised_facts((1..80).map { |id| [id, host, port.to_i] }, timeout: 0.5) }
    assert_took(GCLevel.slow? ? 60 : 12, took) # one after the other they take at least 80 times 0.5 s
    assert_problem facts, "broker 2 kafka", /no answer/, /Kafka listens/
    left_out = fact(facts, "brokers")
    assert_equal :note, left_out.status
    assert_match(/\A(\d+) of 80 advertised brokers were looked at, at most 50 in/, left_out.value)
    assert_includes 10..50, left_out.value.to_i # all steps that begin within the timeout
  ensure
    silent.each(&:close)
  end

  # In a cluster of this size each client of the doctor would start thousands of threads.
  def test_of_thousands_of_advertised_brokers_50_are_examined_and_none_is_queried
    broker = advertising { |own| [own, *(2..2_000).map { |id| [id, "127.0.0.1", 1] }] }
    facts = cluster_facts(broker.address, timeout: 60) # librdkafka makes 2,000 threads
    assert_match(/\A50 of 2000 advertised brokers/, fact(facts, "brokers").value)
    assert_equal (2..50).map { |id| "broker #{id} tcp" }, facts.select(&:problem?).map(&:name)
    assert_match(/only their names and ports/, facts.last.value)
  end

  # ---- settings ----

  SECRET = "geheim-4711"

  def test_invalid_settings_are_a_problem_and_show_no_secret
    facts = cluster_facts("127.0.0.1:1", "sasl.username": "u", "sasl.password": SECRET)
    assert_problem facts, "settings", /has no effect without SASL/, /Mend/
    wrong = cluster_facts("127.0.0.1:1", "security.protocl": SECRET)
    assert_problem wrong, "settings", /did you mean "security\.protocol"/, /Mend/
    refute_includes [facts, wrong].join, SECRET
  end

  def test_a_rejected_login_shows_no_secret
    broker = advertising
    facts = cluster_facts(broker.address, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u",
                                          "sasl.password": SECRET)
    assert_problem facts, "#{broker.address} sasl", /reject/, /SASL/
    refute_includes facts.join, SECRET
  end

  # A client that used the transactional.id would fence the program's producer.
  def test_a_transactional_id_in_the_settings_is_not_used
    one = producer(servers: embedded_cluster.bootstrap_servers, "transactional.id": "examined")
    one.transaction { one.produce_sync(topic: topic(on: embedded_cluster), payload: "x") }
    facts = cluster_facts(*embedded_cluster.bootstrap_servers.split(","), "transactional.id": "examined", acks: "all")
    assert_empty facts.select(&:problem?).map(&:to_s)
    one.transaction { one.produce_sync(topic: topic(on: embedded_cluster), payload: "x") }
  end

  # ---- the whole report ----

  def test_a_report_has_an_aligned_line_for_each_fact_and_json_and_a_status
    facts = [Doctor::Fact.ok("a", "fine"), Doctor::Fact.note("long name", "well\nknown."),
             Doctor::Fact.problem("b", "bad.", "Mend it.")]
    report = Doctor::Report.new(facts)
    expected = ["         a          fine", "note     long name  well\\nknown", "PROBLEM  b          bad. Mend it.", "",
                "1 problem"]
    assert_equal expected, report.to_s.lines(chomp: true)
    refute_predicate report, :fine?
    assert_equal [1, { name: "b", status: :problem, value: "bad.", advice: "Mend it." }],
                 [report.to_h[:problems], report.to_h[:facts].last]
    assert_predicate Doctor::Report.new(facts.first(2)), :fine?
  end

  def test_a_full_examination_reports_every_fact_and_leaves_nothing_open
    report = Doctor.examine(servers: [embedded_cluster.bootstrap_servers.split(",").first], directory: "/")
    names = %w[ruby libc allocator penstock librdkafka features tls sasl compression ffi threads]
    assert_empty names + ["open files", "wall clock"] - report.facts.map(&:name)
    assert_match(/^ +\S+ kafka +cluster /, report.to_s)
  end

  def test_the_same_addresses_are_accepted_as_in_the_setting
    { "kafka" => ["kafka", 9092], "kafka:1" => ["kafka", 1], "[::1]:9093" => ["::1", 9093],
      " 10.0.0.1:9092 " => ["10.0.0.1", 9092] }.each { |text, parts| assert_equal parts, Doctor::Address.parse(text).to_a }
    assert_equal "[::1]:1", Doctor::Address.new("::1", 1).to_s
    ["", ":9092", "a:b", "a:70000", "a:0", "::1", "a b:1", "ssl://a.b:9"].each do |text|
      assert_raises(ArgumentError, text) { Doctor.examine(servers: [text]) }
    end
    assert_raises(ArgumentError) { Doctor.examine(timeout: 0) }
  end
end
