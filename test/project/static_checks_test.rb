# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/static_checks"

# The static checks find violations in sources made for the tests. rake test:static runs them on Penstock's sources.
class StaticChecksTest < Minitest::Test
  extend Marks

  ROOT = File.expand_path("../..", __dir__)
  FACE = <<~C
    #include <ruby.h>
    #include <ruby/thread.h>
    #include <stdlib.h>
    void ps_run(void (*body)(void *));
    static VALUE made;
  C

  # @param files [Hash{String => String}] the contents of the C files
  def checks(files)
    Dir.mktmpdir do |directory|
      files.each do |name, text|
        FileUtils.mkdir_p(File.join(directory, File.dirname(name)))
        File.write(File.join(directory, name), text)
      end
      yield StaticChecks.new(directory, library(directory, files.keys))
    end
  end

  def library(directory, names)
    objects = names.grep(/c\z/).map { |name| File.join(directory, name) }
    config = RbConfig::CONFIG
    File.join(directory, "penstock.so").tap do |path|
      included = [directory, File.join(directory, "core"), config["rubyhdrdir"], config["rubyarchhdrdir"]]
      system("gcc", "-w", "-shared", "-fPIC", "-fvisibility=hidden", *included.flat_map { |folder| ["-I", folder] }, *objects,
             "-o", path, exception: true)
    end
  end

  def test_a_function_that_reaches_ruby_indirectly_without_the_gvl_is_found
    source = <<~C
      static void make(void) { rb_gc(); }
      static void step(void) { make(); }
      void body_nogvl(void *arg) { step(); }
      void others(void) { make(); }
    C
    checks("a.c" => FACE + source) do |found|
      assert_equal ["body_nogvl > a.c:step > a.c:make > rb_gc"], found.ruby_reached
    end
  end

  def test_an_inline_function_of_rubys_headers_counts_as_ruby
    checks("a.c" => "#{FACE}int size_cb(void *arg) { return RSTRING_LEN(made) > 0; }\n") do |found|
      assert_equal ["size_cb > a.c:RSTRING_LEN"], found.ruby_reached
    end
  end

  def test_a_call_path_through_another_file_is_found
    files = { "a.c" => "void helper(void);\nvoid body_cb(void *arg) { helper(); }\n",
              "b.c" => "#{FACE}void helper(void) { rb_gc(); }\n" }
    checks(files) { |found| assert_equal ["body_cb > helper > rb_gc"], found.ruby_reached }
  end

  def test_functions_that_are_called_without_the_gvl_must_have_a_marked_name
    source = <<~C
      static void body(void *arg) {}
      static void named_cb(void *arg) {}
      static void *sleep_well(void *arg) { return NULL; }
      static void wake_unblock(void *arg) {}
      void start(void)
      {
          ps_run(body);
          ps_run(named_cb);
          rb_nogvl(sleep_well, NULL, wake_unblock, NULL, 0);
      }
    C
    checks("a.c" => FACE + source) do |found|
      assert_equal ["a.c: body is called without the GVL", "a.c: sleep_well is called without the GVL"], found.unnamed_callbacks
    end
  end

  def test_ruby_in_the_core_is_found
    core = "#include <ruby.h>\nvoid ps_run(void (*body)(void *)) { rb_gc(); }\n"
    checks("core/run.c" => core) do |found|
      assert_equal ["core/run.c: #include <ruby.h>", "core/run.c calls rb_gc"], found.ruby_in_core
      assert_equal ["ps_run > rb_gc"], found.ruby_reached
    end
  end

  def test_calls_and_includes_of_higher_layers_are_found
    wait = "#include \"base/base.h\"\nvoid ps_low(void);\nvoid ps_high(void);\nvoid ps_wait(void) { ps_low(); ps_high(); }\n"
    files = { "core/base/base.c" => "void ps_low(void) {}\n", "core/wait/wait.c" => wait,
              "core/produce/high.c" => "#include \"consume/consume.h\"\nvoid ps_wait(void);\nvoid ps_high(void) { ps_wait(); }\n",
              "core/base/base.h" => "", "core/consume/consume.h" => "" }
    checks(files) do |found|
      assert_equal ["core/produce/high.c: consume/consume.h is in core/consume", "core/wait/wait.c: ps_high is in core/produce"],
                   found.upwards.sort
    end
  end

  def test_calls_and_includes_of_the_clients_by_the_codec_are_found
    codec = "#include \"shared/shared.h\"\n#include \"ruby/penstock.h\"\n" \
            "void penstock_wait(void);\nvoid pack(void) { penstock_wait(); }\n"
    files = { "message_pack/pack.c" => codec, "ruby/nogvl.c" => "void penstock_wait(void) {}\n", "ruby/penstock.h" => "",
              "shared/shared.h" => "" }
    checks(files) do |found|
      assert_equal ["message_pack/pack.c: penstock_wait is in ruby", "message_pack/pack.c: ruby/penstock.h is in ruby"],
                   found.upwards.sort
    end
  end

  def test_files_of_a_folder_that_call_each_other_in_a_circle_are_found
    files = { "core/base/a.c" => "void ps_b(void);\nvoid ps_a(void) { ps_b(); }\n",
              "core/base/b.c" => "void ps_c(void);\nvoid ps_b(void) { ps_c(); }\n",
              "core/base/c.c" => "void ps_a(void);\nvoid ps_c(void) { ps_a(); }\nvoid ps_d(void) {}\n",
              "core/base/e.c" => "void ps_d(void);\nvoid ps_e(void) { ps_d(); }\n" }
    checks(files) do |found|
      assert_equal ["core/base/a.c, core/base/b.c, core/base/c.c: a.c calls ps_b, b.c calls ps_c, c.c calls ps_a"], found.circles
    end
  end

  def test_exported_symbols_besides_init_are_found
    source = <<~C
      __attribute__((visibility("default"))) void Init_penstock(void) {}
      __attribute__((visibility("default"))) void leaked(void) {}
      void hidden(void) {}
    C
    checks("a.c" => source) { |found| assert_equal ["leaked is exported"], found.exported_symbols }
  end

  def test_findings_of_the_analyzer_are_reported
    source = "#include <stdlib.h>\nvoid twice(char *a) { free(a); free(a); }\n"
    checks("a.c" => source) { |found| assert_match(/\Aa.c: twice: .*\[-Wanalyzer-double-free\]/, found.analyzer.first) }
  end

  def test_a_string_of_foreign_text_made_outside_its_helper_is_found
    source = <<~C
      #include <ruby/encoding.h>
      VALUE host(const char *text)
      {
          return rb_utf8_str_new_cstr(text); /* rb_str_new_cstr(text) in a comment is none */
      }
      VALUE topic(const char *text, long size)
      {
          return rb_enc_interned_str(text, size, NULL);
      }
      VALUE sentence(const char *text)
      {
          rb_str_catf(made, "%ld: %s", 1L, text);
          return rb_sprintf("%ld of %" PRIsVALUE, 1L, rb_str_new_frozen(made));
      }
      VALUE literal(void)
      {
          return rb_str_new_cstr("ours");
      }
    C
    found = ["a.c: host: rb_utf8_str_new_cstr", "a.c: topic: rb_enc_interned_str", "a.c: sentence: rb_str_catf"]
    allowed = source.gsub(/(host|topic|sentence|literal)\(/, '\1_of(')
    checks("a.c" => FACE + source, "ruby/foreign_text.c" => FACE + allowed) do |checked|
      assert_equal found, checked.foreign_text
    end
  end

  # All checks but the analyzer, whose findings differ with each gcc: rake test:static runs that too.
  # defect 5, 15
  thorough slow def test_penstocks_sources_have_no_findings
    libraries = %w[penstock message_pack].map { |name| File.join(ROOT, "lib/penstock/#{name}.#{RbConfig::CONFIG["DLEXT"]}") }
    ours = StaticChecks.new(File.join(ROOT, "ext/penstock"), *libraries)
    assert_empty ours.foreign_text + ours.exported_symbols + ours.ruby_in_core + ours.unnamed_callbacks +
                 ours.ruby_reached + ours.upwards
  end

  def test_correct_sources_have_no_findings
    source = <<~C
      static void *sleep_nogvl(void *arg) { return malloc(4); }
      static void make(void) { made = rb_str_new_cstr("text"); }
      __attribute__((visibility("default"))) void Init_penstock(void)
      {
          make();
          free(rb_nogvl(sleep_nogvl, NULL, RUBY_UBF_IO, NULL, 0));
      }
    C
    core = "#include <stdlib.h>\nvoid ps_run(void (*body)(void *)) { body(NULL); }\n"
    checks("a.c" => FACE + source, "core/run.c" => core) { |found| assert_empty found.call.values.flatten }
  end
end
