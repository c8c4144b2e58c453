# frozen_string_literal: true

require_relative "../test_helper"

# When the codec is loaded, and what with it: in programs of their own.
class MessagePackLoadingTest < PenstockTest
  # @param files [Array<String>] that the program requires first
  # @param warnings [Boolean] with Ruby's warnings, which must be none
  # @return [String] what the program prints
  def output_of(program, *files, warnings: true)
    includes = LIBRARIES.flat_map { |path| ["-I", path] }
    required = files.flat_map { |file| ["-r", file] }
    output, errors, status = Limited.capture3(RbConfig.ruby, *("-w" if warnings), *includes, *required, "-e", program)
    assert status.success?, "#{status}: #{output}#{errors}"
    assert_empty errors
    output
  end

  LOADED = "puts $LOADED_FEATURES.grep(/message_pack/).map { |file| file[%r{penstock/.*}] }"

  def test_penstock_does_not_load_the_codec_before_a_program_names_it
    before, after = output_of(<<~RUBY, "penstock").split("named\n")
      #{LOADED}
      puts "named"
      p Penstock::MessagePack.unpack(Penstock::MessagePack.pack([1, "a"]))
      #{LOADED}
    RUBY
    assert_equal "", before
    assert_equal '[1, "a"]', after.lines.first.chomp
    assert_includes after, "penstock/message_pack.#{RbConfig::CONFIG["DLEXT"]}"
  end

  CLIENTS = '$LOADED_FEATURES.grep(%r{penstock/(?:penstock\.|native|producer|consumer|admin|config)})'

  def test_the_codec_alone_loads_neither_the_clients_nor_librdkafka
    maps = "/proc/self/maps"
    output = output_of(<<~RUBY, "penstock/message_pack")
      p Penstock::MessagePack.unpack(Penstock::MessagePack.pack([1, "a"])), #{CLIENTS}
      p File.read("#{maps}").include?("rdkafka") if File.exist?("#{maps}")
    RUBY
    assert_equal ['[1, "a"]', "[]", *("false" if File.exist?(maps))], output.lines(chomp: true)
  end

  def test_the_codecs_errors_have_the_standard_form_without_the_clients
    messages = output_of(<<~'RUBY', "penstock/message_pack").lines(chomp: true)
      MP = Penstock::MessagePack
      ["\xC1", "\x01\x02", "\xD4\x05a", "\x91" * 200].each { |data| MP.unpack(data) rescue puts $!.message.dump }
      MP::Unpacker.new.feed("\x01").read_array_header rescue puts $!.message.dump
      puts MP::UnpackError.new("caf\xE9\n".b).message.dump
    RUBY
    messages.map!(&:undump)
    assert_equal ["Invalid byte: no value begins with 0xc1.", "Invalid data: 1 extra bytes after the object.", "caf\uFFFD\\n"],
                 messages.values_at(0, 1, -1)
    messages[0..-2].each { |message| assert_nil ErrorFormat.problem(message) }
  end

  %w[penstock penstock/message_pack].permutation.each do |files|
    define_method("test_an_error_can_be_frozen_for_other_ractors_after_requiring_#{files.join("_and_").tr("/", "_")}") do
      [files, files.last(1)].each do |required|
        assert_equal "[true, true]\n", output_of(<<~'RUBY', *required)
          error = begin; Penstock::MessagePack.unpack("\xC1"); rescue => e; e; end
          p [Ractor.shareable?(Ractor.make_shareable(error)), error.backtrace.any?]
        RUBY
      end
    end
  end

  def test_core_ext_loads_the_codec_alone
    program = "p [Penstock::MessagePack.unpack(1.to_msgpack), #{CLIENTS}]"
    assert_equal "[1, []]\n", output_of(program, "penstock/message_pack/core_ext")
  end

  # ---- threads ----

  # A thread loads the codec, and stops at the end of a class in a file of it. There `other` runs in other threads, until these
  # wait or have ended.
  WHILE_LOADING = <<~'RUBY'
    def while_loading(load, other, threads: 1, file: /(?!codec)/)
      others = nil
      trace = TracePoint.new(:end) do |point|
        next unless others.nil? && point.path.match?(%r{penstock/message_pack/#{file}})

        others = Array.new(threads) { Thread.new(&other).tap { |thread| thread.report_on_exception = false } }
        sleep 0.001 until others.all? { |thread| !thread.status || thread.status == "sleep" }
      end
      trace.enable(&load)
      others.map(&:value)
    end

    WAYS = { "named" => -> { Penstock::MessagePack }, "required" => -> { require "penstock/message_pack" } }
  RUBY

  # Without warnings: Ruby warns of a circular require whenever two threads require the same file at once.
  %w[named required].repeated_permutation(2) do |loaded, used|
    define_method("test_a_thread_sees_all_of_the_codec_if_it_is_#{used}_while_another_thread_has_#{loaded}_it") do
      assert_equal "[7, 7, 7, 7]\n", output_of(<<~RUBY, "penstock", warnings: false)
        #{WHILE_LOADING}
        use = lambda do
          WAYS["#{used}"].call
          Penstock::MessagePack::DefaultFactory.load(Penstock::MessagePack.pack(7))
        end
        p while_loading(WAYS["#{loaded}"], use, threads: 4)
      RUBY
    end
  end

  # Such as Timeout's.
  def test_the_codec_is_whole_after_an_exception_interrupted_its_loading
    assert_equal "RuntimeError stop\n[1, \"a\"]\nPenstock::MessagePack::MalformedFormatError\n", output_of(<<~RUBY, "penstock")
      #{WHILE_LOADING}
      loading = Thread.new do
        own = Thread.current
        own.report_on_exception = false
        while_loading(WAYS["named"], -> { own.raise("stop") }, file: "registry")
      end
      begin
        loading.value
      rescue RuntimeError => e
        puts "\#{e.class} \#{e.message}"
      end
      p Penstock::MessagePack::DefaultFactory.load(Penstock::MessagePack.pack([1, "a"]))
      begin
        Penstock::MessagePack.unpack("\\xC1")
      rescue Penstock::MessagePack::UnpackError => e
        puts e.class
      end
    RUBY
  end

  # ---- Ractors ----

  IN_A_RACTOR = <<~'RUBY'
    Warning[:experimental] = false
    ractor = Ractor.new { Penstock::MessagePack.unpack(Penstock::MessagePack.pack([1, "a"])) }
    sleep 0.001 until ractor.inspect.end_with?(" terminated>") # see test/support/ractor_wakeups.rb
    p ractor.respond_to?(:value) ? ractor.value : ractor.take
  RUBY

  def test_a_ractor_may_be_the_first_to_name_the_codec_if_the_program_has_required_it
    assert_equal "[1, \"a\"]\n", output_of(IN_A_RACTOR, "penstock/message_pack")
    assert_equal "[1, \"a\"]\n", output_of(IN_A_RACTOR, "penstock", "penstock/message_pack")
  end

  # Ruby 3.4 loads files for other Ractors.
  def test_naming_the_codec_first_in_a_ractor_works_or_raises_rubys_own_error
    program = IN_A_RACTOR.sub("Ractor.new {", "Ractor.new { Thread.current.report_on_exception = false;")
    output = output_of("begin\n#{program}rescue Ractor::RemoteError => e\n  puts e.cause.class\nend", "penstock")
    assert_equal RUBY_VERSION < "3.4" ? "Ractor::UnsafeError\n" : "[1, \"a\"]\n", output
  end
end
