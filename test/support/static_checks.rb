# frozen_string_literal: true

require "etc"
require "rbconfig"
require "set"
require "tmpdir"
require "tsort"
require_relative "call_graph"
require_relative "limited"

# Checks the C sources without running them: see docs/evidence/safety.md, "Static checks". Each check returns its findings as
# lines. It works on any directory like ext/penstock, so that tests can give it faulty ones. It needs gcc.
class StaticChecks
  # False reports of gcc's analyzer: [file, function, option] and why they are false.
  ACCEPTED = {
    ["ruby/produce_methods.c", "client_produce_many", "-Wanalyzer-use-of-uninitialized-value"] => "rb_scan_args fills them in",
    ["special_consts.h", "RB_NIL_P", "-Wanalyzer-use-of-uninitialized-value"] => "the same, inlined",
    ["ruby/handover.c", "prepare", "-Wanalyzer-malloc-leak"] => "partition_key is in a chunk, which frees it",
    ["core/produce/delivery.c", "ps_deliveries_settle", "-Wanalyzer-malloc-leak"] => "reason, too",
    ["core/produce/delivery.c", "ps_batch_never_sent", "-Wanalyzer-malloc-leak"] => "reason, too",
    ["core/consume/commits.c", "wait_behind_all", "-Wanalyzer-malloc-leak"] => "ps_list_merge destroys the list that it replaces",
    ["core/consume/consumer_jobs.c", "ps_consumer_restart_if_due",
     "-Wanalyzer-malloc-leak"] => "the job's thread and the consumer have references",
    ["core/consume/fetched.c", "topic_number", "-Wanalyzer-malloc-leak"] => "is in the array, which frees it",
    ["core/consume/fetched.c", "ps_fetched_end", "-Wanalyzer-malloc-leak"] => "the same",
    ["core/client/events.c", "ps_events_statistics",
     "-Wanalyzer-malloc-leak"] => "is in the queue, which is emptied before it is freed",
    ["core/client/events.c", "ps_events_closed", "-Wanalyzer-malloc-leak"] => "the same",
    ["core/client/client.c", "ps_client_close_by", "-Wanalyzer-use-after-free"] => "the closing thread has its own reference",
    ["core/admin/admin_call.c", "call_unref", "-Wanalyzer-double-free"] => "each owner releases its own reference once",
    ["ruby/admin_client.c", "question_new", "-Wanalyzer-malloc-leak"] => "the call's Ruby object frees it",
    ["core/client/poller.c", "ps_poller_join", "-Wanalyzer-use-after-free"] => "the joining thread has its own reference",
    ["core/client/poller.c", "list_remove", "-Wanalyzer-use-after-free"] => "the same"
  }.freeze
  SUFFIXES = /_(cb|nogvl|unblock)\z/
  # Functions that call their function arguments without the GVL, or pass them on to such functions.
  TAKERS = /\b(?:rb_nogvl|rb_thread_call_without_gvl2?|penstock_nogvl_now|penstock_sleep|pthread_\w+|ps_\w+|rd_kafka_\w+)\(/
  HARMLESS = %w[rb_nogvl rb_errno_ptr].freeze # the second returns errno's address, as newer Rubies write it
  RUBYS_INCLUDE = /^\s*#\s*include.*(?:ruby|penstock\.h)/
  # Files that do not use Ruby.
  CORE = %r{\Acore/|\Amessage_pack/engine}
  # The layers, and the layers below each. A file includes and calls only what is in its own layer and in these.
  BELOW = { "core/base" => [], "core/wait" => %w[core/base], "core/client" => %w[core/base core/wait],
            "core/produce" => %w[core/base core/wait core/client], "core/consume" => %w[core/base core/wait core/client],
            "core/admin" => %w[core/base core/wait core/client],
            "shared" => [],
            "ruby" => %w[core/base core/wait core/client core/produce core/consume core/admin shared],
            "message_pack" => %w[shared] }.freeze
  # Files of one folder that call each other in a circle, and why.
  CIRCLES = {
    %w[core/base/platform.c core/base/random.c] => "threads begin and end with OpenSSL's random numbers, and so does a fork",
    %w[core/client/client.c core/client/credentials.c core/client/registry.c] =>
      "a client is in the list of open clients, which closes them; its tokens are asked for while it opens",
    %w[core/client/dispatch.c core/client/events.c] => "a queue of events and the threads that dispatch it hold each other",
    %w[core/client/poller.c core/client/watch.c] => "a thread that watches its client takes over from the poller, and hands back",
    %w[ruby/batch.c ruby/consumed_message.c] => "a batch makes messages, and both share its memory",
    %w[ruby/consumer_calls.c ruby/poll_methods.c] => "polls call the rebalance listener; marking rewinds unreceived messages",
    %w[ruby/delivery_handle.c ruby/event_source.c ruby/producer_class.c] => "a producer's events have delivery reports",
    %w[ruby/fiber_wait.c ruby/nogvl.c] => "a wait is a fiber's or a thread's",
    %w[message_pack/message_pack.c message_pack/message_pack_buffer.c message_pack/message_pack_keys.c
       message_pack/message_pack_packer.c message_pack/message_pack_read.c message_pack/message_pack_unpacker.c
       message_pack/message_pack_write.c] => "objects of the program pack and unpack others"
  }.freeze
  SETS_UP = /_init\z/ # functions that only set up a class's methods, file by file
  # Only this file makes Strings of text from outside.
  TEXT = "ruby/foreign_text.c"
  # Functions that make a String of bytes, or put a C String into one, and their literal arguments in these sources, which are
  # harmless.
  MAKES_TEXT = /\b(?:rb_(?:utf8_|usascii_|external_|locale_|filesystem_|interned_|enc_|enc_interned_|tainted_)?str_(?:new|cat)\w*|
                   rb_(?:enc_)?interned_str\w*|rb_str_buf_new_cstr|rb_str_buf_cat\w*|rb_str_cat\w*)\((?!\s*(?:"|NULL))/x
  FORMATS_TEXT = /\b(?:rb_sprintf|rb_raise|rb_exc_raise|rb_warn\w*|rb_enc_raise|rb_sys_fail\w*)\([^;]*%(?:[-\d.*]*)s/
  # Functions that make Strings of other data than text from outside: [file, function] and why. MessagePack's documents are data.
  DATA = {
    ["ruby/config.c", "was_given"] => "names of settings in our source",
    ["ruby/config.c", "conf_is"] => "values of settings in our source",
    ["ruby/consumed_message.c", "bytes"] => "keys, payloads and values of headers",
    ["ruby/consumer_calls.c", "consumer_group_metadata"] => "librdkafka's own form of it, in bytes",
    ["ruby/message.c", "parse_topic"] => "a topic name that was checked", ["ruby/shareable_producer.c", "slot_handle"] => "an id"
  }.freeze
  CHECKS = { "exported symbols" => :exported_symbols, "Strings of foreign text" => :foreign_text,
             "Ruby in the core" => :ruby_in_core, "calls and includes upwards" => :upwards, "circles of files" => :circles,
             "callbacks without a suffix" => :unnamed_callbacks,
             "Ruby without the GVL" => :ruby_reached, "gcc -fanalyzer" => :analyzer }.freeze

  attr_reader :notes, :sources

  # @param directory [String] the sources: the core's are in core/, with a folder and a header for each layer
  # @param libraries [Array<String>] the built extensions
  def initialize(directory, *libraries)
    @directory = File.expand_path(directory)
    @libraries = libraries
    @sources = Dir.glob("**/*.c", base: @directory).sort
    @core, @face = @sources.partition { |file| file.match?(CORE) }
    @notes = []
  end

  # @return [Hash{String => Array<String>}] the findings of each check
  def call = CHECKS.transform_values { |check| public_send(check) }

  # Only Init_ is exported: any other symbol could clash with another library's.
  def exported_symbols
    @libraries.flat_map do |library|
      names = run("nm", "-D", "--defined-only", library).lines.map { |line| line.split.last }
      names.grep_v("Init_#{File.basename(library, ".*")}").map { |name| "#{name} is exported" }
    end
  end

  # The core includes none of Ruby's headers, and calls none of its functions.
  def ruby_in_core
    included = (@core + Dir.glob("**/*.h", base: @directory).grep(CORE)).flat_map do |file|
      text(file).lines.grep(RUBYS_INCLUDE).map { |line| "#{file}: #{line.strip}" }
    end
    called = @core.flat_map do |file|
      graph.called_in(file).grep(CallGraph::RUBY).map { |name| "#{file} calls #{name}" }
    end
    included + called
  end

  # No other file makes Strings of C text, whose bytes may be invalid UTF-8 and may control terminals. Functions that copy a VALUE
  # (rb_str_new_frozen) are not concerned; nor are penstock_raise and the like, because Error makes every message printable.
  def foreign_text
    (@face - [TEXT]).grep_v(%r{\Amessage_pack/}).flat_map do |file|
      functions(text(file)).flat_map do |name, body|
        made = body.scan(MAKES_TEXT).grep_v(/_frozen\(|_to_interned/) + body.scan(FORMATS_TEXT)
        DATA.key?([file, name]) ? [] : made.map { |call| "#{file}: #{name}: #{call.delete_suffix("(")[/\A\w+/]}" }
      end
    end
  end

  # Layers use only themselves and those below. penstock.c, which sets everything up, is above all.
  def upwards
    (included + called).filter_map do |file, what, layer|
      own = layer_of(file)
      "#{file}: #{what} is in #{layer}" unless own.nil? || layer.nil? || [own, *BELOW.fetch(own)].include?(layer)
    end.uniq
  end

  # No files of a folder call each other in a circle, except those in CIRCLES: a reader can begin with the lowest file.
  def circles
    found = Circles.of(@sources.to_h { |file| [file, neighbours(file)] })
    mended = CIRCLES.keys.select { |files| (files - @sources).empty? } - found
    @notes << "#{(found & CIRCLES.keys).size} circles of files accepted"
    (found - CIRCLES.keys).map { |files| "#{files.join(", ")}: #{calls_among(files).join(", ")}" } +
      mended.map { |files| "#{files.join(", ")} are in no circle any more" }
  end

  # Functions that are passed to one that calls them without the GVL have a name with a suffix, or belong to the core.
  def unnamed_callbacks
    own = graph.defined(@face).to_set
    @face.flat_map do |file|
      given = arguments(text(file)).select { |name| own.include?(name) || own.include?("#{file}:#{name}") }
      given.uniq.grep_v(SUFFIXES).map { |name| "#{file}: #{name} is called without the GVL" }
    end
  end

  # There is no call path from a function with such a name, or of the core, to one of Ruby's.
  def ruby_reached
    core = graph.defined(@core).to_set
    roots = graph.defined.select { |title| title.match?(SUFFIXES) || core.include?(title) }
    @notes << "#{roots.size} of #{graph.defined.size} functions are without the GVL"
    roots.filter_map { |root| graph.way_to_ruby(root, HARMLESS)&.join(" > ") }
  end

  def analyzer
    found = parallel(@sources) { |file| analyze(file) }.flatten(1)
    accepted, faults = found.partition { |file, function, option, _| ACCEPTED.key?([file, function, option]) }
    @notes << "#{accepted.size} warnings accepted"
    faults.map { |file, function, option, text| "#{file}: #{function}: #{text} [#{option}]" }
  end

  # The circles of a graph.
  class Circles
    include TSort

    # @param edges [Hash{String => Array<String>}]
    # @return [Array<Array<String>>] each circle's nodes, in order
    def self.of(edges) = new(edges).strongly_connected_components.select { |nodes| nodes.size > 1 }.map(&:sort).sort

    def initialize(edges)
      @edges = edges
    end

    def tsort_each_node(&) = @edges.each_key(&)
    def tsort_each_child(node, &) = @edges.fetch(node).each(&)
  end

  private

  def text(file) = File.read(File.join(@directory, file))

  # @return [Array<Array(String, String, String)>] file, header and its layer
  def included
    Dir.glob("**/*.{c,h}", base: @directory).flat_map do |file|
      text(file).scan(/^#include "(.*?)"/).flatten.map { |path| [file, path, layer_of(path) || layer_of("core/#{path}")] }
    end
  end

  # @return [Array<Array(String, String, String)>] file, function and its layer
  def called
    @sources.flat_map { |file| graph.called_in(file).map { |name| [file, name, layer_of(places[name])] } }
  end

  # @return [Array<String>] the other files of its folder that it calls
  def neighbours(file)
    called = graph.called_in(file).grep_v(SETS_UP).filter_map { |name| places[name] }.uniq
    called.select { |other| other != file && File.dirname(other) == File.dirname(file) }
  end

  def calls_among(files)
    files.flat_map do |file|
      called = graph.called_in(file).select { |name| files.include?(places[name]) && places[name] != file }
      called.map { |name| "#{File.basename(file)} calls #{name}" }
    end
  end

  def layer_of(file) = file && BELOW.keys.find { |layer| file.start_with?("#{layer}/") }

  # @return [Hash{String => String}] the file of each function that is not static
  def places = @places ||= @sources.flat_map { |file| graph.defined([file]).map { |name| [name, file] } }.to_h

  def graph
    @graph ||= Dir.mktmpdir { |objects| CallGraph.new(parallel(@sources) { |file| [file, unit(file, objects)] }.to_h) }
  end

  def unit(file, objects)
    object = File.join(objects, "#{file.tr("/", "_")}.o")
    run("gcc", *flags, "-O0", "-fcallgraph-info", "-c", file, "-o", object)
    CallGraph::Unit.new(file, File.readlines(object.sub(/\.o\z/, ".ci")))
  end

  # @return [Array<Array(String, String)>] names of functions, and the text up to the end of each: the brace at the start of a
  #   line
  def functions(source)
    source.gsub(%r{/\*.*?\*/}m, "").split(/^\}/).map { |part| [part[/^\w[^;={}()]*?(\w+)\([^;{}]*\)\n\{/m, 1], part] }
  end

  # The plain names among the arguments of functions that take callbacks, and of calls among these arguments.
  def arguments(source)
    source.gsub(%r{/\*.*?\*/}m, "").to_enum(:scan, TAKERS).flat_map do
      text = balanced(Regexp.last_match.post_match)
      text.gsub(/\w+\s*\(/, "(").split(/[(),]/).map(&:strip).grep(/\A[a-z_]\w*\z/)
    end
  end

  # @return [String] the text up to the closing parenthesis
  def balanced(text)
    depth = 1
    length = text.each_char.with_index { |char, i| break i if (depth += { "(" => 1, ")" => -1 }.fetch(char, 0)).zero? }
    text[0, length]
  end

  # @return [Array<Array>] file, function, option and text of each warning
  def analyze(file)
    output, = Limited.capture2e({ "LC_ALL" => "C" }, "gcc", *flags, "-O1", "-fanalyzer", "-fno-diagnostics-show-caret",
                                "-fdiagnostics-path-format=none", "-c", file, "-o", File::NULL, chdir: @directory)
    function = nil
    output.each_line.filter_map do |line|
      function = line[/In function '(\w+)'/, 1] || function
      match = line.match(/^([^:]*):\d+:\d+: \w+: (.*?)(?: \[CWE-\d+\])? \[(-W[\w-]+)\]/)
      [match[1].sub(%r{\A/.*/}, ""), function, match[3], match[2]] if match
    end
  end

  def flags
    config = RbConfig::CONFIG
    @flags ||= ["-std=gnu11", "-I", ".", "-I", "core", "-isystem", config["rubyhdrdir"], "-isystem", config["rubyarchhdrdir"],
                *`pkg-config --cflags rdkafka`.split]
  end

  def parallel(items)
    queue = Queue.new.tap { |filled| items.each { |item| filled << item } }.close
    threads = Array.new(Etc.nprocessors) do
      Thread.new do
        done = []
        while (item = queue.pop)
          done << yield(item)
        end
        done
      end
    end
    threads.flat_map(&:value)
  end

  def run(*command)
    output, status = Limited.capture2e({ "LC_ALL" => "C" }, *command, chdir: @directory)
    raise "#{command.first} failed:\n#{output}" unless status.success?

    output
  end
end
