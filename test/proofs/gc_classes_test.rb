# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/gc_exercises"

# Each native class at every level of garbage collection.
class GCClassesTest < PenstockTest
  PROGRAM = <<~RUBY.freeze
    require #{File.expand_path("../support/gc_exercises", __dir__).dump}
    name, *rest = ARGV
    GCExercises.new(*rest).call(name)
  RUBY

  GCExercises::CLASSES.product(GCExercises::PRESSURES) do |name, pressure|
    define_method("test_#{name}_under_#{pressure}") do
      skip "no compaction here" unless pressure == :stress || GC.respond_to?(:verify_compaction_references)
      skip "Ruby itself dies of automatic compaction before 3.2" if pressure == :auto_compact && !GCLevel.auto_compacts?
      ruby!(PROGRAM, name.to_s, pressure.to_s, cluster.bootstrap_servers, topic(partitions: 1), seconds: 100)
    end
  end

  # ---- their sizes ----

  SIZES = <<~'RUBY'
    require "objspace"
    require ARGV.shift
    servers, *topics = ARGV
    $kept = GCExercises::CLASSES.zip(topics).map { |name, topic| GCExercises.new("none", servers, topic).send(name) }
    plain = ObjectSpace.memsize_of(Object.new)
    GCExercises::CLASSES.each do |name|
      constant = name.to_s.split("_").map(&:capitalize).join
      room = [Penstock, Penstock.const_get(:Native)].find { |one| one.const_defined?(constant, false) }
      next unless room # other types belong to the extension, and Ruby does not show their objects

      type = room.const_get(constant)
      sizes = ObjectSpace.each_object(type).map { |object| ObjectSpace.memsize_of(object) }
      puts "#{name} #{sizes.size} #{sizes.max.to_i - plain}"
    end
  RUBY

  # defect 29
  def test_each_native_class_reports_its_memory_size
    topics = GCExercises::CLASSES.map { topic(partitions: 1) }
    output = ruby!(SIZES, File.expand_path("../support/gc_exercises", __dir__), cluster.bootstrap_servers, *topics)
    sizes = output.lines.to_h { |line| line.split.then { |name, count, more| [name.to_sym, [count.to_i, more.to_i]] } }
    assert_operator sizes.size, :>=, 10
    code = Dir[File.expand_path("../../ext/penstock/**/*.c", __dir__)].map { |file| File.read(file) }.join
    types = code.scan(/^static const rb_data_type_t \w+ = \{.*?^\};/m)
    types = types.grep_v(%r{wrap_struct_name = "[\w:]+/}) # types without a class, used during a call
    types = types.grep_v(/"Penstock::MessagePack::/) # message_pack_gc_test.rb covers these
    assert_equal GCExercises::CLASSES.size, types.grep(/\.dsize = /).size
    sizes.each do |name, (count, more)|
      assert_operator count, :>, 0, name
      assert_operator more, :>, 0, name
    end
  end

  # ---- user code that raises ----

  RAISING = <<~'RUBY'
    require ARGV.shift
    SERVERS, TOPIC = ARGV
    class Expected < StandardError; end
    def boom(*) = raise(Expected, "raised #{Array.new(3) { |i| "text #{i}" }.join(" ")}")
    class Provider
      def on_oauthbearer_token_refresh(event) = boom(event)
    end
    class Failing < Logger
      def add(*) = boom
    end
    def made(**kafka)
      one = Penstock::Producer.new do |config|
        config.kafka = { "bootstrap.servers": SERVERS, "linger.ms": 0, log_level: 0, **kafka }
        yield config if block_given?
      end
      at_exit { one.close(timeout: 0) }
      one
    end
    def raised(kind)
      yield
      abort "#{kind}: no error was raised"
    rescue Expected
      nil
    end
    $stderr.reopen(File::NULL) # listeners and loggers that raise are reported to stderr
    message = { topic: TOPIC, payload: "x", key: "k", headers: { "a" => %w[b c] }, label: "label" }
    stepping, around, listening = Array.new(3) { made }
    logging = made(debug: "msg", log_level: 7) { |config| config.logger = Failing.new(nil) }
    8.times { [stepping, around, listening, logging].each { |one| one.produce_sync(message) } }
    stepping.middleware.append(method(:boom))
    around.around(method(:boom))
    %w[message.acknowledged message.produced_sync].each { |name| listening.monitor.subscribe(name) { |event| boom(event) } }
    tokens = made("bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER") do |config|
      config.oauth.token_provider_listener = Provider.new
    end
    reader = Penstock::Consumer.new { |config| config.kafka = { "bootstrap.servers": SERVERS } }
    at_exit { reader.close(timeout: 1) }
    reader.assign(TOPIC => { 0 => :beginning })
    GCPressure.under_stress(1) do
      tokens.produce_async(message)
      5.times do
        raised("middleware") { stepping.produce_sync(message) }
        raised("middleware of many") { stepping.produce_many_sync([message] * 3) }
        raised("around") { around.produce_sync(message) }
        raised("each") { reader.each { |got| boom(got) } }
        [listening, logging].each { |one| one.produce_sync(message).persisted? or abort "an error of a listener or logger prevented the delivery" }
      end
    end
    GCPressure.replace_garbage
    print listening.produce_sync(message).label
  RUBY

  # An error of middleware, of a hook or of a consumer's block reaches the caller. An error of a listener, a logger or a token
  # provider does not.
  # defect 29
  def test_exceptions_of_user_code_during_gc_have_no_side_effects
    exercises = File.expand_path("../support/gc_exercises", __dir__)
    assert_equal "label", ruby!(RAISING, exercises, cluster.bootstrap_servers, topic(partitions: 1), seconds: 100)
  end

  # The list of classes is complete.
  # defect 29
  def test_each_native_class_is_exercised
    types = Dir[File.expand_path("../../ext/penstock/**/*.c", __dir__)].flat_map do |file|
      File.read(file).scan(/"Penstock::(?:Native::)?(\w+)",$/)
    end
    names = types.flatten.map { |type| type.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.to_sym }
    assert_equal names.sort, GCExercises::CLASSES
  end
end
