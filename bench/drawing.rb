# frozen_string_literal: true

require "cgi/escape"

module Bench
  # An SVG picture of texts, rectangles and lines, light or dark like the page around it.
  class Drawing
    FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', sans-serif"
    LIGHT = { ground: "#ffffff", text: "#1f2328", muted: "#57606a", grid: "#d8dee4" }.freeze
    DARK = { ground: "#1b1f24", text: "#e6edf3", muted: "#9da7b3", grid: "#3a424c" }.freeze
    # Widths of characters relative to the font's size, for a rather wide font: a text that fits by them fits in other fonts too.
    WIDTHS = { /[ijlIJ'.,|!:; ]/ => 0.34, %r{[frt()\[\]{}/\\"-]} => 0.42, /[mwMW%@&=+<>~…]/ => 0.97, /[A-Z]/ => 0.76,
               /[\u2E80-\u{10FFFF}]/ => 1.0 }.freeze
    BOLD = 1.1 # times as wide

    class << self
      def width_of(text, size, bold: false)
        text.each_char.sum { |char| WIDTHS.find { |chars, _| chars.match?(char) }&.last || 0.64 } * size * (bold ? BOLD : 1)
      end

      # @return [Array<String>] lines of at most that width
      def wrap(text, width, size, bold: false)
        fits = ->(line) { width_of(line, size, bold:) <= width }
        text.split.each_with_object([]) do |word, lines|
          longer = "#{lines.last} #{word}"
          lines.any? && fits[longer] ? lines[-1] = longer : lines.concat(pieces(word, fits))
        end
      end

      # XML allows no control characters, even escaped.
      def escape(text) = CGI.escapeHTML(text.to_s.gsub(/[\x00-\x08\x0B\x0C\x0E-\x1F]/, "\uFFFD"))

      # The styles of the elements' classes. Printed pages are never dark.
      def style
        ".bench{font-family:#{FONT};font-variant-numeric:tabular-nums}#{colours(LIGHT)}" \
          "@media screen and (prefers-color-scheme:dark){#{colours(DARK)}}"
      end

      private

      def colours(set)
        set.map { |name, colour| ".bench .#{name}{fill:#{colour}}.bench line.#{name}{stroke:#{colour}}" }.join
      end

      # A word that is wider than a line, in pieces.
      def pieces(word, fits)
        word.each_char.with_object([]) do |char, parts|
          parts.any? && fits[parts.last + char] ? parts[-1] += char : parts << char
        end
      end
    end

    def initialize
      @elements = []
    end

    # @param left [Numeric] the start of the text, or the point that the anchor names
    def text(left, baseline, text, size:, kind: :text, anchor: "start", bold: false)
      @elements << element("text", x: left, y: baseline, class: kind, "font-size": size, "text-anchor": anchor,
                                   "font-weight": (600 if bold)) { Drawing.escape(text) }
    end

    # @param about [String, nil] the tooltip
    def bar(left, top, width, height, colour, about = nil)
      title = "<title>#{Drawing.escape(about)}</title>" if about
      @elements << element("rect", x: left, y: top, width:, height:, fill: colour) { title }
    end

    def line(x1, y1, x2, y2, kind, width: 1)
      @elements << element("line", x1:, y1:, x2:, y2:, class: kind, "stroke-width": width)
    end

    # @param about [String] a description for readers who cannot see the picture
    # @param style [Boolean] whether to include the style sheet; a page with many pictures has it once
    def svg(width, height, title:, about:, style: true)
      ground = element("rect", x: 0, y: 0, width:, height:, class: :ground)
      element("svg", xmlns: "http://www.w3.org/2000/svg", class: "bench", role: "img", width:, height: height.ceil,
                     viewBox: "0 0 #{width} #{height.ceil}", "aria-label": title) do
        ["", "<title>#{Drawing.escape(title)}</title>", "<desc>#{Drawing.escape(about)}</desc>",
         *("<style>#{Drawing.style}</style>" if style), ground, *@elements, ""].join("\n")
      end
    end

    private

    def element(name, **attributes)
      inside = yield if block_given?
      all = attributes.compact.map do |key, value|
        " #{key}=\"#{value.is_a?(Float) ? value.round(2) : Drawing.escape(value)}\""
      end.join
      inside ? "<#{name}#{all}>#{inside}</#{name}>" : "<#{name}#{all}/>"
    end
  end
end
